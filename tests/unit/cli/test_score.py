from __future__ import annotations

import json
import math

import numpy as np
import pytest
import typer
from scipy import sparse
from typer.testing import CliRunner

from selfexpress.cli.score import score
from selfexpress.errors import DataError
from selfexpress.files.arrays import write_csr, write_labels


@pytest.fixture
def run():
    app = typer.Typer()
    app.command()(score)
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def files(tmp_path):
    """Four points, two classes, the second cut in two; one wrong coefficient."""
    write_labels(tmp_path / "labels.npy", [0, 0, 1, 2])
    write_labels(tmp_path / "truth.csv", ["a", "a", "b", "b"])
    coefficients = np.array(
        [[0, 3, 1, 0], [2, 0, 0, 0], [0, 0, 0, -1], [0, 0, 0, 0]], dtype=np.float64
    )
    write_csr(tmp_path / "coefficients.npz", sparse.csr_array(coefficients))
    write_csr(tmp_path / "graph.npz", sparse.csr_array(np.ones((4, 4))))
    return tmp_path


def test_table_shows_the_three_scores(run, files):
    result = run(files / "labels.npy", files / "truth.csv")
    assert result.exit_code == 0
    for name, value in [("ACC", "0.7500"), ("NMI", "0.8165"), ("ARI", "0.5714")]:
        line = next(line for line in result.output.splitlines() if name in line)
        assert value in line
    assert "SRE" not in result.output


def test_json_has_the_values_worked_by_hand(run, files):
    result = run(files / "labels.npy", files / "truth.csv", "--json")
    assert json.loads(result.output) == pytest.approx(
        {
            "n_samples": 4,
            "accuracy": 3 / 4,
            "normalized_mutual_info": 1 / math.sqrt(1.5),
            "adjusted_rand": 4 / 7,
        }
    )


def test_coefficients_add_their_scores(run, files):
    given = (files / "labels.npy", files / "truth.csv", "--json")
    result = run(*given, "--coefficients", files / "coefficients.npz")
    scores = json.loads(result.output)
    # Row shares 1/4, 0, 0 and an empty row; weight 1 of 7; two classes of one edge.
    assert scores["subspace_preserving_error"] == pytest.approx(1.25 / 4)
    assert scores["graph_error"] == pytest.approx(1 / 7)
    assert scores["connectivity"] == pytest.approx(2)


def test_affinity_takes_the_place_of_the_coefficients_graph(run, files):
    given = (files / "labels.npy", files / "truth.csv", "--json")
    scores = json.loads(run(*given, "--affinity", files / "graph.npz").output)
    assert "subspace_preserving_error" not in scores
    # Each point has one neighbour in its class and two outside.
    assert scores["graph_error"] == pytest.approx(2 / 3)
    table = run(*given[:2], "--affinity", files / "graph.npz").output
    assert "wrong edges" in table
    assert "0.6667" in table


def test_truth_may_be_one_array_of_many(run, files):
    np.savez(files / "all.npz", X=np.eye(4), fine=[0, 1, 2, 3], coarse=[0, 0, 1, 1])
    result = run(
        files / "labels.npy", files / "all.npz", "--truth-name", "coarse", "--json"
    )
    assert json.loads(result.output)["accuracy"] == 3 / 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["labels.npy", "none.npy"], "does not exist"),
        (["labels.npy", "short.npy"], r"got 4 and 2"),
        (["labels.npy", "truth.csv", "--coefficients", "labels.npy"], "labels.npy"),
        (["labels.npy", "truth.csv", "--affinity", "small.npz"], r"got \(3, 3\)"),
    ],
)
def test_bad_files_raise_our_own_error(words, message, run, files):
    write_labels(files / "short.npy", [0, 1])
    write_csr(files / "small.npz", sparse.eye_array(3))
    result = run(*[word if word.startswith("--") else files / word for word in words])
    assert isinstance(result.exception, DataError)
    with pytest.raises(DataError, match=message):
        raise result.exception
