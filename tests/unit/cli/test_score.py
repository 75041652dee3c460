from __future__ import annotations

import functools
import json
import math

import numpy as np
import pytest
from scipy import sparse

from selfexpress.errors import DataError
from selfexpress.files.arrays import write_csr, write_labels

LABELS = ("labels.npy", "truth.csv")


@pytest.fixture
def run(call):
    """Score four points, two classes, the second cut in two; one wrong coefficient."""
    write_labels("labels.npy", [0, 0, 1, 2])
    write_labels("truth.csv", ["a", "a", "b", "b"])
    coefficients = np.array(
        [[0, 3, 1, 0], [2, 0, 0, 0], [0, 0, 0, -1], [0, 0, 0, 0]], dtype=np.float64
    )
    write_csr("coefficients.npz", sparse.csr_array(coefficients))
    write_csr("graph.npz", sparse.csr_array(np.ones((4, 4))))
    write_labels("short.npy", [0, 1])
    write_csr("small.npz", sparse.eye_array(3))
    np.savez("all.npz", X=np.eye(4), fine=[0, 1, 2, 3], coarse=[0, 0, 1, 1])
    return functools.partial(call, "score")


def test_table_shows_the_three_scores(run):
    output = run(*LABELS).output
    for name, value in [("ACC", "0.7500"), ("NMI", "0.8165"), ("ARI", "0.5714")]:
        line = next(line for line in output.splitlines() if name in line)
        assert value in line
    assert "SRE" not in output


def test_json_has_the_values_worked_by_hand(run):
    scores = {
        "n_samples": 4,
        "accuracy": 3 / 4,
        "normalized_mutual_info": 1 / math.sqrt(1.5),
        "adjusted_rand": 4 / 7,
    }
    assert json.loads(run(*LABELS, "--json").output) == pytest.approx(scores)


def test_coefficients_add_their_scores(run):
    words = (*LABELS, "--json", "--coefficients", "coefficients.npz")
    scores = json.loads(run(*words).output)
    # Row shares 1/4, 0, 0 and an empty row; weight 1 of 7; two classes of one edge.
    assert scores["subspace_preserving_error"] == pytest.approx(1.25 / 4)
    assert scores["graph_error"] == pytest.approx(1 / 7)
    assert scores["connectivity"] == pytest.approx(2)


def test_affinity_takes_the_place_of_the_coefficients_graph(run):
    scores = json.loads(run(*LABELS, "--json", "--affinity", "graph.npz").output)
    assert "subspace_preserving_error" not in scores
    # Each point has one neighbour in its class and two outside.
    assert scores["graph_error"] == pytest.approx(2 / 3)
    table = run(*LABELS, "--affinity", "graph.npz").output
    assert "wrong edges" in table
    assert "0.6667" in table


def test_truth_may_be_one_array_of_many(run):
    ran = run("labels.npy", "all.npz", "--truth-name", "coarse", "--json")
    assert json.loads(ran.output)["accuracy"] == 3 / 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("labels.npy", "none.npy"), "does not exist"),
        (("labels.npy", "short.npy"), r"got 4 and 2"),
        ((*LABELS, "--coefficients", "labels.npy"), "labels.npy"),
        ((*LABELS, "--affinity", "small.npz"), r"got \(3, 3\)"),
    ],
)
def test_bad_files_raise_our_own_error(words, message, run):
    with pytest.raises(DataError, match=message):
        run(*words)
