from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from selfexpress.errors import DataError
from selfexpress.files.atomic import replacing


def test_a_file_appears_only_when_it_is_whole(tmp_path):
    path = tmp_path / "a.txt"
    with replacing(path) as target:
        target.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail():
        with replacing(path) as target:
            target.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_files_have_the_permissions_of_ordinary_ones(tmp_path):
    (tmp_path / "ordinary").touch()
    with replacing(tmp_path / "model") as target:
        save_file({"a": torch.zeros(3)}, target)
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_a_missing_folder_is_named():
    with pytest.raises(DataError, match="folder nowhere must exist"):
        replacing(Path("nowhere/a.txt")).__enter__()


def test_a_folder_is_no_place_for_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place in (Path(), tmp_path):
        with (
            pytest.raises(DataError, match="but is a folder"),
            replacing(place) as target,
        ):
            target.write_text("lost")
    assert not list(tmp_path.iterdir())
