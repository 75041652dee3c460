from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import warnings
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from selfexpress.errors import CheckpointError, DamagedFileWarning
from selfexpress.training import checkpoints
from selfexpress.training.checkpoints import CheckpointFolder, read_checkpoint

TENSORS = {
    "weight": torch.arange(12, dtype=torch.float32).reshape(3, 4),
    "half": torch.arange(4, dtype=torch.bfloat16),
    "count": torch.tensor(7),
    "empty": torch.zeros(0, 3),
}
FACTS = {"seed": 3, "names": ["a", "b"], "rate": 0.1}


def steps(folder: Path) -> list[int]:
    return sorted(int(path.stem.partition("-")[2]) for path in folder.iterdir())


def test_what_was_saved_comes_back(tmp_path):
    CheckpointFolder(tmp_path / "a" / "b").save(5, TENSORS, FACTS)
    found = CheckpointFolder(tmp_path / "a" / "b").newest()
    assert found.step == 5
    assert found.facts == FACTS
    assert found.tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert found.tensors[name].dtype == tensor.dtype
        assert torch.equal(found.tensors[name], tensor)


def test_tensors_that_share_memory_or_are_strided_come_back(tmp_path):
    base = torch.arange(6.0).reshape(2, 3)
    tensors = {"base": base, "turned": base.T, "part": base[:, 1]}
    CheckpointFolder(tmp_path).save(1, tensors, {})
    found = CheckpointFolder(tmp_path).newest()
    assert all(torch.equal(found.tensors[name], tensors[name]) for name in tensors)


def test_an_empty_folder_has_no_newest(tmp_path):
    assert CheckpointFolder(tmp_path).newest() is None


def test_the_last_two_are_kept(tmp_path):
    folder = CheckpointFolder(tmp_path)
    for step in (1, 2, 10, 30):
        folder.save(step, TENSORS, FACTS)
    assert steps(tmp_path) == [10, 30]
    assert folder.newest().step == 30


def test_later_steps_go_when_training_went_back(tmp_path):
    folder = CheckpointFolder(tmp_path, keep=3)
    for step in (10, 20, 30):
        folder.save(step, TENSORS, FACTS)
    folder.save(15, TENSORS, FACTS)
    assert steps(tmp_path) == [10, 15]


def test_remnants_of_killed_processes_are_removed_and_other_files_left(tmp_path):
    (tmp_path / ".0123456789abcdef.safetensors").write_bytes(b"half")
    (tmp_path / "step-notes.txt").write_text("mine")
    (tmp_path / "model.safetensors").write_text("mine")
    CheckpointFolder(tmp_path).save(1, TENSORS, FACTS)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "step-000000000001.safetensors",
        "step-notes.txt",
        "model.safetensors",
    }


def every_byte_flipped(content: bytes):
    for place in range(len(content)):
        yield content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :]


def test_no_flipped_bit_changes_what_is_read(tmp_path):
    """Any flip is refused, or lies in what has no meaning (spaces of the header)."""
    small = {"a": torch.arange(3.0), "b": torch.tensor([1, 2])}
    path = CheckpointFolder(tmp_path).save(4, small, {"seed": 1})
    content = path.read_bytes()
    messages = []
    for damaged in every_byte_flipped(content):
        path.write_bytes(damaged)
        try:
            found = read_checkpoint(path)
        except CheckpointError as error:
            messages.append(str(error))
        else:
            assert found.step == 4
            assert found.facts == {"seed": 1}
            assert all(torch.equal(found.tensors[name], small[name]) for name in small)
    assert len(messages) > 0.9 * len(content)
    assert not any("\n" in message for message in messages)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_damaged_newest_is_named_and_the_one_before_it_taken(share, tmp_path):
    folder = CheckpointFolder(tmp_path)
    folder.save(1, TENSORS, FACTS)
    newest = folder.save(2, TENSORS, FACTS)
    newest.write_bytes(newest.read_bytes()[: int(share * newest.stat().st_size)])
    with pytest.warns(DamagedFileWarning, match=newest.name):
        assert folder.newest().step == 1
    # Going on overwrites the damaged one and leaves two intact ones.
    folder.save(2, TENSORS, FACTS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert folder.newest().step == 2
    assert steps(tmp_path) == [1, 2]


def test_nothing_intact_is_refused_with_a_warning_each(tmp_path):
    folder = CheckpointFolder(tmp_path)
    assert folder.newest() is None
    for step in (1, 2):
        folder.save(step, TENSORS, FACTS).write_bytes(b"")
    with (
        pytest.warns(DamagedFileWarning) as caught,
        pytest.raises(CheckpointError, match="all of its 2 are damaged"),
    ):
        folder.newest()
    assert len(caught) == 2


def test_a_sound_checkpoint_that_cannot_be_read_is_not_passed_over(
    tmp_path, monkeypatch
):
    """Going on from an earlier one would delete it."""
    folder = CheckpointFolder(tmp_path)
    folder.save(1, TENSORS, FACTS)
    newest = folder.save(2, TENSORS, FACTS)
    with monkeypatch.context() as later:
        newer = replace(checkpoints.CHECKPOINT, version=2)
        later.setattr(checkpoints, "CHECKPOINT", newer)
        with pytest.raises(CheckpointError, match="must be 2, got 1"):
            folder.newest()
    newest.unlink()
    newest.symlink_to(tmp_path / "on a disk that is not mounted")
    with pytest.raises(CheckpointError, match="there is none"):
        folder.newest()


@pytest.mark.parametrize(
    "change",
    [
        {"format": "selfexpress-model"},
        {"step": -1},
        {"step": True},
        {"step": "1"},
        {"facts": [1]},
    ],
    ids=str,
)
def test_headers_of_another_kind_are_refused_even_with_a_right_checksum(
    change, tmp_path, monkeypatch
):
    path = CheckpointFolder(tmp_path).save(1, TENSORS, FACTS)
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["selfexpress"])
    del header["checksum"]
    metadata = {"selfexpress": json.dumps({**header, **change})}
    save_file(load_file(path), path, metadata=metadata)
    with pytest.raises(CheckpointError, match="must be a whole training checkpoint"):
        read_checkpoint(path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="must name a folder"):
        CheckpointFolder(tmp_path / "file" / "inside")
    with pytest.raises(CheckpointError, match="must name a folder"):
        CheckpointFolder(tmp_path / "file")


def test_a_folder_that_vanished_is_named(tmp_path):
    folder = CheckpointFolder(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(CheckpointError, match=r"step 3 .*gone must exist"):
        folder.save(3, TENSORS, FACTS)
    with pytest.raises(CheckpointError, match="must be readable"):
        folder.newest()


def test_a_full_disk_is_one_clear_sentence_and_leaves_earlier_ones(tmp_path):
    folder = CheckpointFolder(tmp_path)
    folder.save(1, TENSORS, FACTS)
    folder.save(2, TENSORS, FACTS)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(
            CheckpointError, match=r"step 3 .* earlier checkpoints"
        ) as e:
            folder.save(3, {"large": torch.zeros(100_000)}, FACTS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "\n" not in str(e.value)
    assert steps(tmp_path) == [1, 2]
    assert folder.newest().step == 2


READ_ONLY = """
import os, sys, torch
from selfexpress.errors import CheckpointError
from selfexpress.training.checkpoints import CheckpointFolder
if os.geteuid() == 0:
    os.setuid(65534)  # permissions do not bind the administrator
folder = CheckpointFolder(sys.argv[1])
try:
    folder.save(2, {"a": torch.zeros(3)}, {})
except CheckpointError as error:
    print(error)
print(folder.newest().step)
"""


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX permissions")
def test_a_read_only_folder_is_named_and_stays_readable(tmp_path):
    CheckpointFolder(tmp_path / "kept").save(1, TENSORS, FACTS)
    (tmp_path / "kept").chmod(0o555)
    for parent in takewhile(lambda p: "pytest" in str(p), (tmp_path / "kept").parents):
        parent.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", READ_ONLY, str(tmp_path / "kept")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    (tmp_path / "kept").chmod(0o755)
    message, step = done.stdout.splitlines()
    assert "must be writable" in message
    assert step == "1", done.stderr


def test_facts_that_json_cannot_hold_are_a_programming_error(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        CheckpointFolder(tmp_path).save(1, TENSORS, {"rate": float("nan")})
