"""From ``selfexpress fit --run`` to a page, through the real entry point."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest

from selfexpress import make_subspaces
from selfexpress.files.arrays import write_labels
from selfexpress.report import read_run

FIT = (
    "--gamma", 50, "--max-iter", 60, "--affinity", "symmetric", "--device", "cpu",
    "--quiet",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Rows, their classes, and a picture of each."""
    data = make_subspaces(3, dimension=2, n_features=12, n_samples=30, random_state=0)
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", data.X)
    np.save("images.npy", np.arange(90 * 6, dtype=np.uint8).reshape(90, 2, 3))
    np.save("few.npy", np.zeros((5, 2, 3)))
    write_labels("truth.csv", np.array(["x", "y", "z"])[data.labels])
    write_labels("short.csv", ["x", "y"])
    return tmp_path


def test_a_fit_leaves_a_run_and_the_run_becomes_a_page(call, folder):
    options = ("--run", "my run", "--truth", "truth.csv", "--images", "images.npy")
    code, out, _ = call("fit", "rows.npy", "-k", 3, "-o", "m", *options, *FIT)
    assert code == 0
    assert "run written to my run; see it with: selfexpress report 'my run'" in out
    run = read_run(folder / "my run")
    assert run.scores["accuracy"] == 1
    assert run.class_names == ("x", "y", "z")
    assert run.gallery.samples.shape[1:] == (2, 3)
    assert run.seconds.keys() >= {"training", "spectral"}
    words = shlex.split(run.command)
    assert words[:3] == ["selfexpress", "fit", "rows.npy"]
    assert words[words.index("--run") + 1] == "my run"

    code, out, _ = call("report", "my run")
    assert code == 0
    assert "my run/report.html" in out
    page = (folder / "my run" / "report.html").read_text(encoding="utf-8")
    assert "90 samples in 3 clusters" in page

    code, out, _ = call("report", "my run", "-o", "page.html", "--json")
    assert code == 0
    assert json.loads(out)["report"] == "page.html"
    assert json.loads(out)["bytes"] == (folder / "page.html").stat().st_size


def test_a_data_set_by_name_brings_truth_and_images(call, tmp_path, data_folder):
    run = tmp_path / "run"
    options = ("--max-iter", 5, "--affinity", "symmetric", "--quiet", "--run", run)
    code, _, _ = call("fit", "orl", "-k", 40, "-o", tmp_path / "m", *options)
    assert code == 0
    saved = read_run(run)
    assert len(saved.truth) == len(saved.labels) == 400
    assert saved.gallery.samples.ndim == 3
    assert "accuracy" in saved.scores


@pytest.mark.filterwarnings("default::selfexpress.errors.DegenerateWarning")
def test_warnings_of_the_fit_are_shown_and_kept(call, tmp_path):
    rng = np.random.default_rng(0)
    groups = [np.eye(6)[i] + 0.01 * rng.standard_normal((20, 6)) for i in range(6)]
    np.save(tmp_path / "rows.npy", np.concatenate(groups))
    options = ("-o", tmp_path / "m", "--run", tmp_path / "run", "--quiet")
    steps = ("--gamma", 50, "--max-iter", 60, "--device", "cpu")
    graph = ("--affinity", "nearest_neighbors", "--n-neighbors", 3)
    code, _, err = call("fit", tmp_path / "rows.npy", "-k", 2, *options, *steps, *graph)
    assert code == 0
    assert "warning: The affinity graph should have at most" in err
    kept = read_run(tmp_path / "run").warnings
    assert [f"warning: {text}" for text in kept] == err.splitlines()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--truth", "truth.csv"), "--truth is for a report"),
        (("--images", "images.npy"), "--images is for a report"),
        (("--run", "rows.npy"), "rows.npy must be a folder for the run"),
        (("--run", "r", "--truth", "short.csv"), "short.csv must hold the 90 samples"),
        (("--run", "r", "--images", "few.npy"), "few.npy must hold the 90 samples"),
        (("--run", "r", "--images", "mnits"), "DATA must be a file ending in"),
    ],
)
def test_what_a_run_cannot_use_is_refused_before_the_fit(
    arguments, message, call, folder
):
    code, out, err = call("fit", "rows.npy", "-k", 3, "-o", "m", *arguments, *FIT)
    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    assert message in err
    assert not (folder / "m").exists()
    assert not (folder / "r").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "nowhere must be a folder that holds a run"),
        ((".",), "has no run.selfexpress"),
        (("rows.npy",), "rows.npy must be a folder that holds a run"),
    ],
)
def test_a_report_of_no_run_is_one_line_and_exit_code_two(
    arguments, message, call, folder
):
    code, out, err = call("report", *arguments)
    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    assert message in err
