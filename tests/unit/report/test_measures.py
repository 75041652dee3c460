from __future__ import annotations

import numpy as np
import pytest
from report_problems import fitted_model
from scipy import sparse

from selfexpress import metrics
from selfexpress.report.measure import (
    measure_coefficients,
    measure_graph,
    measure_members,
    measure_scores,
)
from selfexpress.report.planar import planar_map
from selfexpress.report.record import confusion_counts, matched_classes

# Two clusters on a line: centres at 1 and 5.
EMBEDDING = np.array([[0.0], [2.0], [1.0], [4.0], [6.0], [5.0]])
LABELS = np.array([0, 0, 0, 1, 1, 1])


def test_margins_and_members_are_those_worked_by_hand():
    found = measure_members(EMBEDDING, LABELS, 2, 3)
    expected = [(5 - 1) / 6, (3 - 1) / 4, 1, (3 - 1) / 4, (5 - 1) / 6, 1]
    np.testing.assert_allclose(found.margins, expected, rtol=1e-6)
    assert found.central.tolist() == [[2, 0, 1], [5, 3, 4]]
    # The member at its own centre has no doubt about it and is left out.
    assert found.doubtful.tolist() == [[1, 0, -1], [3, 4, -1]]
    # Small and empty clusters have fewer members.
    found = measure_members(EMBEDDING, LABELS, 3, 4)
    assert found.central.tolist() == [[2, 0, 1, -1], [5, 3, 4, -1], [-1] * 4]


def test_margins_are_known_of_one_cluster_and_of_two_in_one_place():
    one = measure_members(EMBEDDING, np.zeros(6, dtype=int), 1, 2)
    assert (one.margins == 1).all()
    two = measure_members(np.ones((4, 2)), np.array([0, 0, 1, 1]), 2, 2)
    assert (two.margins == 0).all()


def test_sums_of_c_are_those_of_the_dense_matrix(seed):
    model = fitted_model(seed=seed)
    found = measure_coefficients(model.coefficients_, model.labels_, 3)
    dense = np.abs(model.coefficients_.toarray())
    members = np.eye(3)[model.labels_]
    np.testing.assert_allclose(found.between, members.T @ dense @ members, rtol=1e-6)
    order = np.argsort(model.labels_, kind="stable")
    np.testing.assert_allclose(found.picture, dense[order][:, order], rtol=1e-6)
    np.testing.assert_allclose(found.borders, [0, 1 / 3, 2 / 3, 1])
    assert found.n_nonzero == np.count_nonzero(dense)


def test_many_samples_are_averaged_into_the_picture():
    n_samples = 1500
    ones = sparse.csr_array(np.ones((n_samples, n_samples), dtype=np.float32))
    found = measure_coefficients(ones, np.zeros(n_samples, dtype=int), 1)
    np.testing.assert_allclose(found.picture, np.ones((600, 600)))


def test_rows_without_coefficients_are_counted():
    matrix = sparse.csr_array(np.array([[0, 1.0, 0], [0, 0, 0], [2.0, 0, 0]]))
    found = measure_coefficients(matrix, np.array([0, 0, 1]), 2)
    assert (found.n_empty, found.n_nonzero) == (1, 2)
    assert found.between.tolist() == [[1, 0], [2, 0]]


def test_the_graph_is_counted_as_by_hand():
    edges = np.zeros((6, 6))
    edges[0, 1] = edges[1, 2] = edges[3, 4] = 1
    graph = measure_graph(sparse.csr_array(edges + edges.T), np.array([0.0, 0.5]))
    assert graph.n_edges == 3
    assert graph.n_components == 3
    assert graph.component_sizes == (3, 2, 1)
    assert graph.n_isolated == 1
    assert graph.degrees.tolist() == [1, 2, 1, 1, 1, 0]


def test_scores_are_those_of_the_metrics(seed):
    model = fitted_model(seed=seed)
    truth = np.roll(model.labels_, 1)
    scores = measure_scores(
        model.labels_,
        truth,
        coefficients=model.coefficients_,
        affinity=model.affinity_matrix_,
        in_graph=np.arange(len(truth)),
    )
    assert scores["accuracy"] == metrics.clustering_accuracy(model.labels_, truth)
    assert scores["graph_error"] == metrics.graph_error(model.affinity_matrix_, truth)
    assert len(scores) == 6


def test_clusters_are_matched_as_accuracy_counts_them(seed):
    rng = np.random.default_rng(seed)
    labels, truth = rng.integers(5, size=80), rng.integers(4, size=80)
    counts = confusion_counts(labels, truth, (5, 4))
    assert counts.sum() == 80
    assert counts[2, 1] == np.sum((labels == 2) & (truth == 1))
    matched = matched_classes(counts)
    assert (matched == -1).sum() == 1
    right = np.mean(matched[labels] == truth)
    assert right == pytest.approx(metrics.clustering_accuracy(labels, truth))


def test_groups_stay_together_on_the_plane(seed):
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(4), 40)
    embedding = np.eye(4)[labels] + 0.05 * rng.normal(size=(160, 4))
    plane = planar_map(embedding, seed=seed)
    assert plane.shape == (160, 2)
    assert plane.min() >= 0
    assert plane.max() <= 1
    distance = np.linalg.norm(plane[:, None] - plane[None], axis=2)
    np.fill_diagonal(distance, np.inf)
    nearest = np.argsort(distance, axis=1)[:, :5]
    assert np.mean(labels[nearest] == labels[:, None]) > 0.97


def test_points_in_one_place_of_the_embedding_are_spread_on_the_plane(seed):
    labels = np.repeat(np.arange(3), 50)
    plane = planar_map(np.eye(3)[labels], seed=seed)
    for cluster in range(3):
        assert len(np.unique(plane[labels == cluster].round(4), axis=0)) > 40


def test_points_beyond_the_anchors_lie_between_them(monkeypatch, seed):
    from selfexpress.report import planar

    monkeypatch.setattr(planar, "_N_ANCHORS", 60)
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(3), 60)
    embedding = np.eye(3)[labels] + 0.02 * rng.normal(size=(180, 3))
    plane = planar_map(embedding, seed=seed)
    centres = np.array([plane[labels == k].mean(axis=0) for k in range(3)])
    nearest = np.linalg.norm(plane[:, None] - centres, axis=2).argmin(axis=1)
    assert np.mean(nearest == labels) > 0.97


@pytest.mark.parametrize("n_samples", [1, 2, 5, 9])
@pytest.mark.parametrize("n_dimensions", [1, 2, 3])
def test_few_points_can_be_drawn(n_samples, n_dimensions):
    rng = np.random.default_rng(0)
    plane = planar_map(rng.normal(size=(n_samples, n_dimensions)))
    assert plane.shape == (n_samples, 2)
    assert np.isfinite(plane).all()


def test_the_plane_is_the_same_twice(seed):
    embedding = np.random.default_rng(seed).normal(size=(50, 3))
    np.testing.assert_array_equal(planar_map(embedding), planar_map(embedding))
