from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from selfexpress.errors import CheckpointError, DataError
from selfexpress.features import Whitening
from selfexpress.files.container import DamagedError, Kind

NOTES = Kind("notes", version=3, what="a file of notes", advice="Write it again.")


def forged(path, text: str) -> None:
    save_file({"a": torch.zeros(2)}, path, metadata={"selfexpress": text})


def read(path, kind: Kind = NOTES):
    with kind.reading(path) as contents:
        return contents


def test_facts_and_tensors_come_back_and_equal_contents_make_equal_files(tmp_path):
    facts = {"n": np.int64(3), "names": ["ä", "b"], "share": 0.1}
    tensors = {"a": np.arange(4.0), "b": torch.ones(2, 3, dtype=torch.bfloat16).T}
    for name in "xy":
        NOTES.write(tmp_path / name, facts, tensors)
    found = read(tmp_path / "x")
    assert found.facts == {"format": "notes", "version": 3, **facts}
    assert torch.equal(found.tensors["a"], torch.arange(4.0, dtype=torch.float64))
    assert torch.equal(found.tensors["b"], tensors["b"])
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()


def test_files_whose_checksum_stands_beside_the_facts_are_read(tmp_path):
    """As they were written before it was one of the facts."""
    text = json.dumps({"format": "notes", "version": 3, "n": 1})
    from selfexpress.files.container import checksum

    tensors = {"a": torch.ones(2)}
    metadata = {"selfexpress": text, "checksum": checksum(text, tensors)}
    save_file(tensors, tmp_path / "x", metadata=metadata)
    assert read(tmp_path / "x").facts["n"] == 1
    save_file({"a": torch.zeros(2)}, tmp_path / "x", metadata=metadata)
    with pytest.raises(DamagedError, match="its checksum differs"):
        read(tmp_path / "x")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        "7",
        "{",
        "{}",
        '{"format": "notes"}',
        '{"format": "other", "version": 3}',
        "[" * 100_000,
        '{"format": ' * 100_000,
    ],
    ids=lambda text: text[:12],
)
def test_strange_facts_are_one_sentence(text, tmp_path):
    forged(tmp_path / "x", text)
    with pytest.raises(DamagedError, match="must be a file of notes, but is") as found:
        read(tmp_path / "x")
    assert len(str(found.value).splitlines()) == 1


def test_deeply_nested_facts_are_refused_where_whitening_loads_them(tmp_path):
    forged(tmp_path / "x", "[" * 100_000)
    with pytest.raises(CheckpointError, match="damaged or something else"):
        Whitening.load(tmp_path / "x")


@pytest.mark.parametrize("version", ["2", "4", "true", '"3"', "null"])
def test_another_version_is_refused_but_not_called_damaged(version, tmp_path):
    forged(tmp_path / "x", f'{{"format": "notes", "version": {version}}}')
    with pytest.raises(CheckpointError, match="must be 3, got") as found:
        read(tmp_path / "x")
    assert not isinstance(found.value, DamagedError)


def test_what_is_not_there_or_cannot_be_written_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="there is none"):
        read(tmp_path / "x")
    with pytest.raises(CheckpointError, match="must be readable"):
        read(tmp_path)
    with pytest.raises(DataError, match="must exist"):
        NOTES.write(tmp_path / "no" / "x", {}, {"a": torch.zeros(1)})
