"""The commands of the README, run in this process through the real entry point."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from selfexpress import SENet, __version__, make_subspaces
from selfexpress.files.arrays import read_csr, read_labels, write_array, write_labels
from selfexpress.metrics import clustering_accuracy


@pytest.fixture(scope="module")
def data():
    return make_subspaces(3, dimension=2, n_features=12, n_samples=60, random_state=0)


STEP = ("--max-iter", 1)
FIT = ("--gamma", 50, "--max-iter", 60, "--affinity", "symmetric", "--device", "cpu")


SUFFIXES = (".npy", ".npz", ".csv", ".parquet", ".mat", ".safetensors")


def test_fit_predict_and_score_files_of_every_kind(call, data, tmp_path):
    model, labels = tmp_path / "m.selfexpress", tmp_path / "labels.csv"
    coefficients, truth = tmp_path / "c.npz", tmp_path / "truth.npy"
    for suffix in SUFFIXES:
        write_array(tmp_path / f"rows{suffix}", data.X)
    write_labels(truth, data.labels)

    rows = tmp_path / "rows.parquet"
    outputs = ("-o", model, "--labels", labels, "--coefficients", coefficients)
    code, out, _ = call("fit", rows, "-k", 3, *outputs, *FIT, "--json", "--quiet")
    assert code == 0
    summary = json.loads(out)
    assert summary["n_samples"] == sum(summary["cluster_sizes"]) == 180
    assert clustering_accuracy(read_labels(labels), data.labels) == 1
    assert read_csr(coefficients).shape == (180, 180)

    for suffix in SUFFIXES:
        rows, named = tmp_path / f"rows{suffix}", tmp_path / f"named{suffix}"
        code, out, _ = call("predict", model, rows, "-o", named, "--device", "cpu")
        assert code == 0
        assert "180 labels written" in out
        assert np.mean(read_labels(named) == read_labels(labels)) > 0.98

    code, out, _ = call("score", named, truth, "--coefficients", coefficients, "--json")
    assert code == 0
    assert json.loads(out)["accuracy"] > 0.98


def test_progress_is_on_stderr_and_results_on_stdout(call, data, tmp_path):
    write_array(tmp_path / "rows.npy", data.X)
    code, out, err = call(
        "fit", tmp_path / "rows.npy", "-k", 3, "-o", tmp_path / "m", *FIT
    )
    assert code == 0
    assert "180 rows in 3 clusters" in out
    assert "training" in out
    assert "60/60" in err
    assert "60/60" not in out


def test_a_fit_may_end_by_itself_and_says_when(call, data, tmp_path):
    write_array(tmp_path / "rows.npy", data.X)
    sizes = ("--hidden-sizes", "32", "--n-embedding", 32, "--device", "cpu")
    rule = ("--schedule", "adaptive", "--learning-rate", 3e-3, "--max-iter", 2000)
    output = ("-o", tmp_path / "m", "--run", tmp_path / "run", "--json", "--quiet")
    code, out, _ = call("fit", tmp_path / "rows.npy", "-k", 3, *sizes, *rule, *output)
    assert code == 0
    summary = json.loads(out)
    settled_at = summary["settings"]["fall_start"]
    assert summary["n_iter"] == -(-settled_at * 4 // 3) < 2000
    text = (tmp_path / "run" / "config.toml").read_text()
    assert 'schedule = "adaptive"' in text
    assert f"# fall-start = {settled_at}" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fit", "none.npy", "-k", 3, "-o", "m"), "none.npy must be a file"),
        (("fit", "none.xyz", "-k", 3, "-o", "m"), "DATA must be a file ending in"),
        (("fit", "hopkins", "-k", 3, "-o", "m"), "DATA must be a file ending in"),
        (("fit", "rows.npy", "-k", 0, "-o", "m"), "n_clusters must be a positive"),
        (("fit", "rows.npy", "-k", 3, "-o", "no/m"), "folder no must exist"),
        (("fit", "rows.npy", "-k", 3, "-o", "m", "--gamma", 0.1), "gamma must exceed"),
        (
            ("fit", "rows.npy", "-k", 3, "-o", "m", "--schedule", "x"),
            "schedule must be",
        ),
        (("fit", "nan.npy", "-k", 3, "-o", "m"), "NaN"),
        (("fit", "few.npy", "-k", 30, "-o", "m"), "n_clusters must be at most"),
        (("predict", "rows.npy", "rows.npy", "-o", "l.npy"), "damaged or something"),
        (("predict", "gone", "rows.npy", "-o", "l.npy"), "there is none"),
        (("predict", "gone", "rows.npy", "-o", "l.txt"), "suffix of l.txt must be"),
        (("fit", "rows.npy", "-k", 3, "-o", "."), "must be a file that can be written"),
        (("fit", "rows.npy", "-k", 3, "-o", "m", "--labels", "l"), "suffix of l must"),
        (("fit", "rows.npy", "-k", 3, "-o", "m", "--device", "mps"), "device must be"),
        (("fit", "rows.npy", "-k", "abc", "-o", "m"), "'-k'"),
        (("fit", "rows.npy", "-k", 3), "Missing option '--output'"),
        (("fit", "rows.npy", "--nope"), "No such option"),
        (("nope",), "No such command 'nope'. Try 'selfexpress --help'."),
        (("demo", "-o", "rows.npy"), "rows.npy"),
        (("score", "rows.npy", "gone.npy"), "rows.npy"),
        (
            ("fit", "rows.npy", "-k", 3, "-o", "m", "--hidden-sizes", 10**9, *STEP),
            "must fit into memory, but",
        ),
        (("predict", "gone", "rows.npy", "-o", "/dev/null"), "suffix of"),
        (("fit", "rows.npy", "-k", 3, "-o", "/dev/null"), "a device or a pipe"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(
    arguments, message, call, data, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", data.X)
    np.save("few.npy", data.X[:5])
    np.save("nan.npy", np.full((10, 3), np.nan))
    code, out, err = call(*arguments, *(("--quiet",) if arguments[0] == "fit" else ()))
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1
    assert message in err
    left = {path.name for path in Path().iterdir()}
    assert left == {"rows.npy", "few.npy", "nan.npy"}


@pytest.mark.filterwarnings("default::selfexpress.errors.DegenerateWarning")
def test_warnings_are_single_lines_too(call, tmp_path):
    rng = np.random.default_rng(0)
    groups = [np.eye(6)[i] + 0.01 * rng.standard_normal((20, 6)) for i in range(6)]
    np.save(tmp_path / "rows.npy", np.concatenate(groups))
    output = ("-o", tmp_path / "m", "--quiet")
    graph = ("--affinity", "nearest_neighbors", "--n-neighbors", 3)
    code, _, err = call(
        "fit", tmp_path / "rows.npy", "-k", 2, *FIT[:4], *graph, *output
    )
    assert code == 0
    (line,) = err.splitlines()
    assert line.startswith("warning: The affinity graph should have at most")


def test_demo_writes_labels_models_and_pictures(call, tmp_path):
    code, out, _ = call("demo", "-o", tmp_path / "demo", "--json")
    assert code == 0
    scores = json.loads(out)
    assert scores["subspaces"]["accuracy"] == 1
    assert scores["subspaces"]["accuracy_new"] >= 0.98
    assert scores["digits"]["accuracy"] >= 0.9
    assert scores["digits"]["accuracy_new"] >= 0.9
    for name in ("subspaces", "digits"):
        picture = (tmp_path / "demo" / f"{name}.png").read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert len(read_labels(tmp_path / "demo" / f"{name}-labels.csv")) > 1000
        SENet.load(tmp_path / "demo" / f"{name}.selfexpress")
    report = (tmp_path / "demo" / "report.html").read_text("utf-8")
    assert "No network was trained" in report
    assert "optimality conditions hold to" in report
    for report in ("report.html", "subspaces-report.html"):
        assert "<!doctype html>" in (tmp_path / "demo" / report).read_text("utf-8")


def test_version_and_help(call):
    assert call("--version")[1].strip() == __version__
    code, out, _ = call("--help")
    assert code == 0
    for command in ("demo", "fit", "predict", "score", "features", "data"):
        assert command in out


def test_module_runs_as_a_program():
    command = [sys.executable, "-m", "selfexpress", "--version"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == __version__


def test_an_interrupt_leaves_with_130_and_no_file(call, monkeypatch, data, tmp_path):
    from selfexpress.estimators import fitting

    def interrupted(*arguments, **keywords):
        raise KeyboardInterrupt

    monkeypatch.setattr(fitting, "train", interrupted)
    np.save(tmp_path / "rows.npy", data.X)
    command = ("fit", tmp_path / "rows.npy", "-k", 3, "-o", tmp_path / "m", "--quiet")
    command += STEP
    code, out, err = call(*command)
    assert code == 130
    assert "Traceback" not in out + err
    assert "Nothing is kept" in err
    assert err.splitlines()[-1] == "error: interrupted"
    assert [path.name for path in tmp_path.iterdir()] == ["rows.npy"]
    code, _, err = call(*command, "--checkpoint", tmp_path / "kept")
    assert code == 130
    assert "the same command takes it up" in err


def test_no_output_overwrites_an_input_or_another_output(call, data, tmp_path):
    rows, model = tmp_path / "rows.csv", tmp_path / "m.selfexpress"
    write_array(rows, data.X)
    before = rows.read_bytes()
    named = tmp_path / "named.csv"
    assert call("fit", rows, "-k", 3, "-o", model, *FIT, "--quiet")[0] == 0
    # Another way to write the same path.
    again = tmp_path / "." / ".." / tmp_path.name / "rows.csv"
    for command, names in (
        (("fit", rows, "-k", 3, "-o", again), "DATA and --output"),
        (("fit", rows, "-k", 3, "-o", model, "--labels", rows), "DATA and --labels"),
        (
            ("fit", rows, "-k", 3, "-o", named, "--labels", named),
            "--output and --label",
        ),
        (("predict", model, rows, "-o", again), "DATA and --output"),
        (
            ("predict", model, rows, "-o", named, "--probabilities", named),
            "--output and --probabilities",
        ),
        (("features", rows, "-o", rows, "--whiten", 3), "DATA and --output"),
    ):
        code, _, err = call(*command)
        assert code == 2
        assert names in err
        assert "must be different files" in err
    assert rows.read_bytes() == before
    assert not named.exists()


def test_what_a_run_reads_is_not_overwritten_by_it(call, data, tmp_path):
    rows, model = tmp_path / "rows.npz", tmp_path / "m.selfexpress"
    np.savez(rows, X=data.X)
    write_array(tmp_path / "pictures.npy", data.X)
    (tmp_path / "config.toml").write_text("seed = 1\n")
    (tmp_path / "run.selfexpress").write_text("no run")
    (tmp_path / "shards").mkdir()
    write_array(tmp_path / "shards" / "a.npy", data.X)
    for name in ("other", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "other" / "config.toml").write_text("seed = 1\n")
    before = {path: path.read_bytes() for path in tmp_path.glob("**/*.*")}
    fit = ("fit", rows, "-k", 3, *FIT, "--quiet")
    pictures, config = tmp_path / "pictures.npy", tmp_path / "config.toml"
    run = tmp_path / "run"
    for words, said in (
        ((*fit, "-o", model, "--run", run, "--images", pictures, "--labels", pictures),
         "--images and --labels must be different"),
        ((*fit, "-o", config, "--config", config), "--config and --output must be"),
        ((*fit, "-o", model, "--run", tmp_path), "run.selfexpress of its own"),
        ((*fit, "-o", model, "--run", tmp_path / "other"), "config.toml of its own"),
        ((*fit, "-o", tmp_path / "empty" / "config.toml", "--run", tmp_path / "empty"),
         "--output and config.toml of --run must be different"),
        (("fit", tmp_path / "shards", "-k", 3, "-o", model, "--checkpoint",
          tmp_path / "shards" / "kept"), "--checkpoint must not lie in the folder of"),
        (("fit", tmp_path / "shards", "-k", 3, "-o", model, "--labels",
          tmp_path / "shards" / "b.npy"), "must not lie among the files of DATA"),
        ((*fit, "-o", model, "--run", rows / "run"), "is a file or lies in one"),
    ):  # fmt: skip
        code, _, err = call(*words)
        assert code == 2
        assert said in err
    assert {path: path.read_bytes() for path in tmp_path.glob("**/*.*")} == before


def test_a_run_can_be_repeated_where_a_folder_has_the_name_of_an_array(
    call, data, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "two.npz", rows=data.X, other=data.X[:5])
    (tmp_path / "rows").mkdir()
    words = ("fit", "two.npz", "--name", "rows", "-k", 3, "-o", "m", "--run", "run")
    assert call(*words, *FIT, "--quiet")[0] == 0
    code, _, err = call("fit", "--config", "run/config.toml", "--quiet")
    assert code == 0, err


@pytest.mark.filterwarnings("default")
def test_each_warning_of_a_table_is_told_once(call, data, tmp_path):
    columns = {f"f{place}": column for place, column in enumerate(data.X.T)}
    lists = {"tokens": data.X.tolist(), "id": list(range(len(data.X)))}
    pq.write_table(pa.table(columns | lists), tmp_path / "lists.parquet")
    pq.write_table(pa.table(columns | {"id": lists["id"]}), tmp_path / "ids.parquet")
    for name, word in (("lists", "only column of lists"), ("ids", "numbers of rows")):
        words = ("fit", tmp_path / f"{name}.parquet", "-k", 3, "-o", tmp_path / "m")
        code, _, err = call(*words, *FIT, "--quiet")
        assert code == 0
        assert err.count(word) == 1


def test_new_rows_in_other_columns_are_refused_by_name(call, data, tmp_path):
    frame = pd.DataFrame(data.X).add_prefix("f")
    frame.to_parquet(tmp_path / "old.parquet")
    frame.rename(columns={"f3": "g3"}).to_parquet(tmp_path / "new.parquet")
    model = tmp_path / "m"
    call("fit", tmp_path / "old.parquet", "-k", 3, "-o", model, *FIT, "--quiet")
    code, _, err = call(
        *("predict", model, tmp_path / "new.parquet", "-o", tmp_path / "l.csv"),
        "--quiet",
    )
    assert code == 2
    assert "g3" in err
    assert "f3" in err
