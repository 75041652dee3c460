"""The synthetic experiments by their command, small enough for every change."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from reproduction.catalogue import EXPERIMENTS
from reproduction.record import ROOT
from reproduction.runner import Results

SYNTHETIC = ("figure2", "table1", "learning-curves-synthetic")


def test_the_synthetic_experiments_run_by_their_command(tmp_path):
    command = [sys.executable, "-m", "reproduction", *SYNTHETIC]
    options = ["--quick", "--device", "cpu", "--records", str(tmp_path)]
    subprocess.run([*command, *options], cwd=ROOT, check=True)
    results = Results(tmp_path)
    found = {n: EXPERIMENTS[n].summarize(results, True).tables for n in SYNTHETIC}
    for gap in found["table1"][1].rows:
        assert 0 < gap[1].ours[0] < 50
    for _, first, *_, last, accuracy in found["figure2"][0].rows:
        assert np.mean(last.ours) < np.mean(first.ours)
        assert np.mean(accuracy.ours) > 90
    assert {path.name for path in tmp_path.glob("images/*")} == {
        "figure2.png",
        "learning-curves-synthetic.png",
    }
