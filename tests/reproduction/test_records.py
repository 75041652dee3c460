from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from reproduction import record as records
from selfexpress.errors import DamagedFileWarning

RECORD = {
    "task": "squares",
    "seed": 0,
    "settings": {"recipe": {"gamma": 1.0}},
    "date": "2026-11-18T00:00:00+00:00",
    "hardware": {"name": "2 cores"},
    "metrics": {"part": {"square": 4}},
    "seconds": {"cell": 0.5},
    "warnings": [],
}


def test_lines_come_back_in_order_and_survive_a_line_cut_short(tmp_path):
    path = tmp_path / "folder" / "cells.jsonl"
    line = json.dumps(RECORD)
    # What a crash leaves, wherever it cuts the line.
    for place in range(1, len(line)):
        path.unlink(missing_ok=True)
        records.append_record(path, RECORD)
        with path.open("a") as file:
            file.write(line[:place])
        records.append_record(path, RECORD | {"seed": 3})
        with pytest.warns(DamagedFileWarning, match=r"Line 2 of .* is left out"):
            found = records.read_records(path)
        assert [record["seed"] for record in found] == [0, 3]


@pytest.mark.parametrize("blank", [b"", b"  ", bytes(80)])
def test_blank_lines_are_passed_over(blank, tmp_path):
    path = tmp_path / "cells.jsonl"
    line = json.dumps(RECORD).encode()
    path.write_bytes(b"\n".join([line, blank, line, blank]))
    assert records.read_records(path) == [RECORD, RECORD]


def test_no_file_holds_no_records(tmp_path):
    assert records.read_records(tmp_path / "none.jsonl") == []


@dataclass(frozen=True)
class Pair:
    first: int
    second: float


def test_records_hold_plain_values(tmp_path):
    results = {
        "array": np.arange(3),
        "scalar": np.float32(0.5),
        "tensor": torch.ones(2),
        "place": Path("/some/where/file.npy"),
        "device": torch.device("cpu"),
        "pair": Pair(1, 2.0),
    }
    path = records.write_record("claim", results, {"a": 1}, seed=3, folder=tmp_path)
    assert path == tmp_path / "claim.jsonl"
    (record,) = records.read_records(path)
    assert record["metrics"] == {
        "array": [0, 1, 2],
        "scalar": 0.5,
        "tensor": [1.0, 1.0],
        "place": "file.npy",
        "device": "cpu",
        "pair": {"first": 1, "second": 2.0},
    }
    assert (record["task"], record["seed"]) == ("claim", 3)
    assert record["settings"] == {"a": 1}
    assert record["versions"]["numpy"] == np.__version__


def test_older_records_of_single_files_are_read_as_the_others():
    found = records.read_records(records.RECORDS / "training-step.jsonl")
    assert [record["date"][:10] for record in found] == ["2026-11-15", "2026-11-16"]
    assert found[-1]["settings"]["width"] == 1024
    assert found[-1]["metrics"]["large"]["n_rows"] == 1_000_000
    small = records.read_records(records.RECORDS / "small-sets.jsonl")
    assert {record["task"] for record in small} == {
        "small-sets-coil20",
        "small-sets-orl",
        "small-sets-ocr-letters",
    }


def test_commands_carry_no_folder_of_this_machine(monkeypatch):
    script = records.ROOT / "reproduction" / "__main__.py"
    words = [str(script), "table1", "--records", "/home/me/out"]
    monkeypatch.setattr(sys, "argv", words)
    expected = "python -m reproduction table1 --records out"
    assert records.command_line() == expected


def test_a_copy_without_history_takes_its_commit_from_the_environment(monkeypatch):
    monkeypatch.setattr(records, "_git", lambda *_: None)
    monkeypatch.setenv("SELFEXPRESS_COMMIT", "abc123")
    assert records.commit() == {"commit": "abc123", "dirty": None}
