"""The synthetic experiments by their command, small enough for every change."""

from __future__ import annotations

import json
import subprocess
import sys

from reproduction.record import ROOT

SYNTHETIC = ("figure2", "table1", "learning-curves-synthetic")


def test_the_synthetic_experiments_run_by_their_command(tmp_path):
    command = [sys.executable, "-m", "reproduction", *SYNTHETIC]
    options = ["--quick", "--json", "--device", "cpu", "--records", str(tmp_path)]
    done = subprocess.run(
        [*command, *options], cwd=ROOT, capture_output=True, check=True
    )
    found = json.loads(done.stdout)["experiments"]
    assert tuple(found) == SYNTHETIC
    for gap in found["table1"]["tables"][1]["rows"]:
        assert 0 < gap["gap %"]["mean"] < 50
    training, unseen = found["figure2"]["tables"][0]["rows"]
    for half in (training, unseen):
        assert half["SRE % at 500"]["mean"] < half["SRE % at 100"]["mean"]
        assert half["ACC % at 500"]["mean"] > 90
    assert {path.name for path in tmp_path.glob("images/*")} == {
        "figure2.png",
        "learning-curves-synthetic.png",
    }
