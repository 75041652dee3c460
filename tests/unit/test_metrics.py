from __future__ import annotations

import datetime
import enum
import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from selfexpress.errors import ConfigError, DataError
from selfexpress.metrics import (
    adjusted_rand,
    clustering_accuracy,
    connectivity,
    graph_error,
    normalized_mutual_info,
    subspace_preserving_error,
)

# Four points, two classes, the second class cut in two.
TRUTH = [0, 0, 1, 1]
CUT = [0, 0, 1, 2]


def random_partitions(seed, *, n_clusters=4, n_classes=6, n_samples=60):
    generator = np.random.default_rng(seed)
    return (
        generator.integers(n_clusters, size=n_samples),
        generator.integers(n_classes, size=n_samples),
    )


class Animal(enum.Enum):
    CAT = "cat"
    DOG = "dog"


@pytest.mark.parametrize("other", [(1, 2), (1, 2, 3)])
def test_labels_may_be_tuples(other):
    labels = np.empty(4, dtype=object)
    labels[:] = [(0, 0), (0, 0), other, other]
    assert clustering_accuracy(labels, TRUTH) == 1
    assert subspace_preserving_error(np.ones((4, 4)), pd.Series(labels)) == 0.5


@pytest.mark.parametrize("first", [Animal.CAT, datetime.date(2020, 1, 1), 1j])
def test_labels_without_an_order_are_refused(first):
    labels = np.array([first, first, Animal.DOG, Animal.DOG], dtype=object)
    with pytest.raises(DataError, match="or what has no order"):
        clustering_accuracy(labels, TRUTH)


def test_accuracy_of_a_case_worked_by_hand():
    # Cluster 0 is matched to a (2 points), cluster 2 to b (2), cluster 1 to nothing.
    assert clustering_accuracy([0, 0, 1, 1, 2, 2], list("aaabbb")) == 4 / 6


@pytest.mark.parametrize(("n_clusters", "n_classes"), [(4, 4), (3, 5), (5, 3), (1, 4)])
def test_accuracy_is_the_best_over_all_matchings(n_clusters, n_classes, seed):
    labels, truth = random_partitions(seed, n_clusters=n_clusters, n_classes=n_classes)
    width = max(n_clusters, n_classes)
    best = max(
        np.mean(np.array(order)[labels] == truth)
        for order in itertools.permutations(range(width))
    )
    assert clustering_accuracy(labels, truth) == pytest.approx(best, rel=1e-12)
    assert clustering_accuracy(truth, labels) == pytest.approx(best, rel=1e-12)


def test_accuracy_prefers_the_better_total_over_the_largest_cell():
    # Greedy would take 5 (cluster 0, class 0) and be left with 0; the best is 4 + 4.
    labels = [0] * 9 + [1] * 4
    truth = [0] * 5 + [1] * 4 + [0] * 4
    assert clustering_accuracy(labels, truth) == 8 / 13


def test_accuracy_of_one_cluster_a_point_needs_no_square_table():
    n_samples = 50_000
    truth = np.arange(n_samples) % 10
    assert clustering_accuracy(np.arange(n_samples), truth) == 10 / n_samples


@pytest.mark.parametrize(
    "rename",
    [
        lambda labels: labels + 100,
        lambda labels: np.array(["p", "q", "r", "s"])[labels],
        lambda labels: torch.tensor(labels),
        lambda labels: list(-labels),
    ],
)
@pytest.mark.parametrize(
    "metric", [clustering_accuracy, normalized_mutual_info, adjusted_rand]
)
def test_names_of_labels_do_not_matter(metric, rename, seed):
    labels, truth = random_partitions(seed)
    assert metric(rename(labels), truth) == pytest.approx(metric(labels, truth))


def test_mutual_information_of_a_case_worked_by_hand():
    # Information and entropy of TRUTH are log 2, the entropy of CUT is 1.5 log 2.
    assert normalized_mutual_info(CUT, TRUTH) == pytest.approx(1 / math.sqrt(1.5))
    arithmetic = normalized_mutual_info(CUT, TRUTH, average="arithmetic")
    assert arithmetic == pytest.approx(1 / 1.25)


def test_mutual_information_of_single_groups():
    assert normalized_mutual_info([1, 1, 1], ["a", "a", "a"]) == 1.0
    assert normalized_mutual_info([1, 1, 1], [0, 1, 2]) == 0.0


def test_adjusted_rand_of_a_case_worked_by_hand():
    # 1 common pair of 6; 2 and 1 pairs; expected 1/3; (1 - 1/3) / (3/2 - 1/3).
    assert adjusted_rand(CUT, TRUTH) == pytest.approx(4 / 7)


def test_mutual_information_and_rand_agree_with_scikit_learn(seed):
    labels, truth = random_partitions(seed)
    assert adjusted_rand(labels, truth) == adjusted_rand_score(truth, labels)
    for average in ("geometric", "arithmetic"):
        expected = normalized_mutual_info_score(truth, labels, average_method=average)
        actual = normalized_mutual_info(labels, truth, average=average)
        assert actual == pytest.approx(expected)


def test_subspace_preserving_error_of_a_case_worked_by_hand():
    coefficients = np.array([[0, 3, -1], [-2, 0, 0], [0, 0, 0.0]])
    # Shares 1/4 and 0; the empty row counts as wrong.
    expected = (0.25 + 0 + 1) / 3
    for matrix in (
        coefficients,
        sparse.csr_matrix(coefficients),
        sparse.coo_array(coefficients),
        torch.tensor(coefficients),
    ):
        error = subspace_preserving_error(matrix, [7, 7, 8])
        assert error == pytest.approx(expected, rel=1e-12)


def test_subspace_preserving_error_does_not_depend_on_the_scale_of_rows(seed):
    generator = np.random.default_rng(seed)
    coefficients = generator.standard_normal((30, 30))
    labels = generator.integers(3, size=30)
    scaled = coefficients * generator.uniform(0.1, 10, size=(30, 1))
    assert subspace_preserving_error(scaled, labels) == pytest.approx(
        subspace_preserving_error(coefficients, labels)
    )


def test_subspace_preserving_error_of_new_points_takes_the_columns_classes():
    coefficients = np.array([[1.0, 1.0, 2.0], [0.0, 5.0, 0.0]])
    error = subspace_preserving_error(
        coefficients, ["a", "b"], column_labels=["a", "b", "a"]
    )
    assert error == pytest.approx((1 / 4 + 0) / 2)


def test_entries_stored_twice_are_added_before_their_size_is_taken():
    data, places = (
        np.array([1.0, -1.0, 1.0]),
        (np.array([0, 0, 0]), np.array([1, 1, 2])),
    )
    matrix = sparse.coo_array((data, places), shape=(3, 3))
    # Row 0 is (0, 0, 1), all wrong; rows 1 and 2 are empty.
    assert subspace_preserving_error(matrix, [0, 0, 1]) == 1.0


def test_graph_error_of_a_case_worked_by_hand():
    affinity = np.array(
        [[9, 4, 1, 0], [4, 9, 0, 0], [1, 0, 0, 2], [0, 0, 2, 0]], dtype=np.float64
    )
    # Loops do not count; edges 4 and 2 are right, 1 is wrong.
    assert graph_error(affinity, [0, 0, 1, 1]) == pytest.approx(1 / 7)
    assert graph_error(affinity, [0, 0, 1, 1], weighted=False) == pytest.approx(1 / 3)


def test_graph_without_edges_is_all_wrong():
    assert graph_error(np.eye(3), [0, 0, 1]) == 1.0
    assert subspace_preserving_error(np.zeros((3, 3)), [0, 0, 1]) == 1.0


def complete(n_points):
    return np.ones((n_points, n_points)) - np.eye(n_points)


def path(n_points):
    return sparse.diags_array(
        [np.ones(n_points - 1)] * 2, offsets=[-1, 1], shape=(n_points, n_points)
    ).tocsr()


@pytest.mark.parametrize("n_points", [2, 3, 7, 450])
def test_connectivity_of_complete_graphs(n_points):
    expected = n_points / (n_points - 1)
    value = connectivity(complete(n_points), [0] * n_points)
    assert value == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("n_points", [3, 10, 400, 401, 1500])
def test_connectivity_of_paths(n_points):
    expected = 1 - math.cos(math.pi / (n_points - 1))
    value = connectivity(path(n_points), np.zeros(n_points, dtype=int))
    # The eigenvalue is a difference from 1, of which machine precision is left.
    assert value == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_connectivity_is_the_smallest_over_the_classes():
    affinity = sparse.block_diag([complete(4), path(5), complete(1)]).toarray()
    affinity[0, 5] = affinity[5, 0] = 100.0  # between classes: must not matter
    labels = ["full"] * 4 + ["path"] * 5 + ["single"]
    expected = 1 - math.cos(math.pi / 4)
    assert connectivity(affinity, labels) == pytest.approx(expected)


def test_connectivity_of_classes_in_pieces_is_zero():
    assert connectivity(sparse.block_diag([complete(3), complete(2)]), [0] * 5) == 0.0
    assert connectivity(np.zeros((2, 2)), [0, 0]) == 0.0
    lonely = sparse.block_diag([complete(3), np.zeros((1, 1))])
    assert connectivity(lonely, [0] * 4) == 0.0


def test_connectivity_of_a_large_class_equals_the_dense_solution(seed):
    generator = np.random.default_rng(seed)
    n_points = 450
    weights = sparse.random_array(
        (n_points, n_points), density=0.03, random_state=generator, format="csr"
    )
    weights = weights + path(n_points)
    dense = (weights + weights.T).toarray()
    np.fill_diagonal(dense, 0)
    scale = np.diag(dense.sum(axis=1) ** -0.5)
    expected = np.linalg.eigvalsh(np.eye(n_points) - scale @ dense @ scale)[1]
    assert connectivity(weights, [0] * n_points) == pytest.approx(expected, rel=1e-9)


def test_connectivity_ignores_scale_sign_and_direction():
    coefficients = np.triu(complete(6))
    expected = connectivity(complete(6), [0] * 6)
    assert connectivity(-3 * coefficients, [0] * 6) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: clustering_accuracy([0, 1], [0, 1, 1]), "2 and 3"),
        (lambda: clustering_accuracy([], []), "at least one sample"),
        (lambda: adjusted_rand([[0, 1]], [0, 1]), r"shape \(1, 2\)"),
        (lambda: adjusted_rand([0.0, np.nan], [0, 1]), "missing"),
        (lambda: adjusted_rand(np.array([0, "a"], dtype=object), [0, 1]), "mixture"),
        (lambda: subspace_preserving_error(np.eye(3), [0, 1]), r"\(2, 2\)"),
        (lambda: subspace_preserving_error(np.ones(3), [0, 1, 2]), "matrix"),
        (lambda: graph_error(np.full((2, 2), np.inf), [0, 1]), "finite"),
        (lambda: graph_error(np.eye(2) * 1j, [0, 1]), "complex128"),
        (lambda: graph_error(np.ones((2, 3)), [0, 1]), r"got \(2, 3\)"),
        (lambda: connectivity(complete(2), [0, 1]), "two points"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_size(call, words):
    with pytest.raises(DataError, match=words):
        call()


def test_unknown_average_is_refused():
    with pytest.raises(ConfigError, match="'max'"):
        normalized_mutual_info([0, 1], [0, 1], average="max")


def test_entries_that_come_twice_are_added_before_their_size_is_taken():
    twice = sparse.csr_array(([2.0, -2.0, 1.0], [1, 1, 2], [0, 3, 3, 3]), shape=(3, 3))
    labels = [0, 1, 0]
    for score in (subspace_preserving_error, graph_error):
        assert score(twice, labels) == score(twice.toarray(), labels)
    assert twice.nnz == 3


@pytest.mark.parametrize(
    "labels",
    [
        np.array([0.0, np.nan, 1.0, 1.0], dtype=object),
        np.array([0, None, 1, 1], dtype=object),
        ["a", "b", math.nan, "b"],
        ["a", None, "b", "b"],
        pd.Series(["a", pd.NA, "b", "b"], dtype="string"),
        pd.Series([0, pd.NA, 1, 1], dtype="Int64"),
        pd.to_datetime(pd.Series(["2026-01-01", None, "2026-01-02", "2026-01-02"])),
        np.ma.masked_array([0, 1, 1, 1], [False, True, False, False]),
        [0.0, math.inf, 1.0, 1.0],
    ],
)
def test_labels_that_are_missing_are_refused_however_they_are_told(labels):
    for pair in ((labels, CUT), (CUT, labels)):
        with pytest.raises(
            DataError, match=r"got missing values\. Flatten or complete"
        ):
            clustering_accuracy(*pair)


@pytest.mark.parametrize(
    "labels", [["a", 1, "b", 2], np.array(["a", 1, "b", 2], dtype=object)]
)
def test_labels_of_two_kinds_are_refused(labels):
    with pytest.raises(DataError, match="all numbers or all text"):
        clustering_accuracy(labels, TRUTH)


def test_labels_and_column_labels_of_two_kinds_are_refused():
    with pytest.raises(DataError, match="labels and column_labels must be all numbers"):
        subspace_preserving_error(np.eye(2), [0, 1], column_labels=["0", "1"])


@pytest.mark.parametrize(
    "change",
    [
        lambda labels: np.array(labels, dtype=object),
        lambda labels: [f"class {label}" for label in labels],
        lambda labels: pd.Series(labels, dtype="Int64"),
        lambda labels: torch.tensor(labels).bfloat16(),
        lambda labels: torch.tensor(labels, dtype=torch.float64, requires_grad=True),
        lambda labels: pd.Series(labels).astype("category"),
    ],
)
def test_labels_of_any_type_are_taken(change):
    assert clustering_accuracy(change(CUT), TRUTH) == 0.75


def test_small_integers_do_not_overflow_where_entries_are_added():
    entries = np.array([100, 100, 1], dtype=np.int8)
    graph = sparse.coo_array((entries, ([0, 0, 1], [1, 1, 2])), shape=(3, 3))
    assert graph_error(graph, [0, 0, 1]) == pytest.approx(1 / 201)


@pytest.mark.parametrize(
    "change",
    [
        lambda graph: graph.astype(np.float16),
        lambda graph: torch.tensor(graph).bfloat16(),
        lambda graph: torch.tensor(graph).to_sparse(),
    ],
)
def test_graphs_of_any_type_are_taken(change):
    graph = np.array([[0, 1, 1], [1, 0, 0], [1, 0, 0.0]])
    assert graph_error(change(graph), [0, 0, 1]) == 0.5
