"""What torchrun starts: the command line, and a job that loses a rank."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from distributed.launching import SECONDS, TESTS, environment

from selfexpress.datasets.synthetic import make_subspaces

pytestmark = pytest.mark.distributed


def torchrun(*words: object, restarts: int = 0) -> subprocess.CompletedProcess[str]:
    options = [
        "--standalone",
        "--nproc-per-node=2",
        f"--max-restarts={restarts}",
        "--monitor-interval=0.1",
    ]
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *options, *map(str, words)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def test_the_command_line_runs_on_many_processes_as_on_one(tmp_path):
    data = make_subspaces(3, dimension=2, n_features=30, n_samples=40, random_state=0)
    np.save(tmp_path / "rows.npy", data.X)
    words = ["-m", "selfexpress", "fit", tmp_path / "rows.npy", "-k", "3"]
    words += [
        "--max-iter",
        "200",
        "--gamma",
        "200",
        "--l1-ratio",
        "0.9",
        "--schedule",
        "cosine",
        "--affinity",
        "symmetric",
        "--quiet",
        "--json",
    ]
    # Without "--", torchrun would take --run for an option of its own.
    many = ["-m", "--", *words[1:], "-o", tmp_path / "many", "--run", tmp_path / "run"]
    ran = torchrun(*many, "--labels", tmp_path / "many.npy")
    assert ran.returncode == 0, ran.stderr
    (line,) = ran.stdout.splitlines()
    assert json.loads(line)["n_samples"] == 120
    alone = [*words, "-o", tmp_path / "one", "--labels", tmp_path / "one.npy"]
    ran = subprocess.run(
        [sys.executable, *map(str, alone)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert ran.returncode == 0, ran.stderr
    labels = np.load(tmp_path / "one.npy")
    assert len(set(zip(labels, data.labels, strict=True))) == 3
    np.testing.assert_array_equal(np.load(tmp_path / "many.npy"), labels)

    named = torchrun(
        *("-m", "selfexpress", "predict", tmp_path / "many", tmp_path / "rows.npy"),
        *("-o", tmp_path / "named.csv"),
    )
    assert named.returncode == 0, named.stderr
    assert len(named.stdout.splitlines()) == 1
    found = np.loadtxt(tmp_path / "named.csv", skiprows=1, dtype=int)
    assert (found == labels).mean() > 0.95
    shared = torchrun(
        *("-m", "selfexpress", "predict", tmp_path / "many", tmp_path / "rows.npy"),
        *("-o", tmp_path / "named.npy", "--probabilities", tmp_path / "shares.npy"),
    )
    assert shared.returncode == 0, shared.stderr
    assert len(shared.stdout.splitlines()) == 1
    np.testing.assert_array_equal(np.load(tmp_path / "named.npy"), found)
    shares = np.load(tmp_path / "shares.npy")
    np.testing.assert_array_equal(shares.argmax(axis=1), found)


def test_a_job_that_loses_a_rank_ends_as_an_undisturbed_one(tmp_path):
    worker = TESTS / "distributed" / "elastic_worker.py"
    results = {}
    for name, words in (("whole", []), ("killed", [70])):
        folder = tmp_path / name
        folder.mkdir()
        ran = torchrun(worker, folder, *words, restarts=2)
        assert ran.returncode == 0, ran.stderr
        results[name] = json.loads((folder / "result.json").read_text())
    assert (tmp_path / "killed" / "died").exists()
    assert results["whole"]["started_at"] == 0
    assert 0 < results["killed"]["started_at"] <= 70
    assert results["killed"]["objective"] == results["whole"]["objective"]
    assert results["killed"]["labels"] == results["whole"]["labels"]


def test_ranks_leave_together_if_one_is_asked_to(tmp_path):
    worker = TESTS / "distributed" / "elastic_worker.py"
    ran = torchrun(worker, tmp_path, 70, "SIGTERM", restarts=2)
    assert ran.returncode == 0, ran.stderr
    # The first rank, which had no signal, wrote the checkpoint of that very step.
    assert json.loads((tmp_path / "result.json").read_text())["started_at"] == 70
