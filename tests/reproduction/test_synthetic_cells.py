from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import sparse

from reproduction.evaluation import objective_parts, thinned
from reproduction.presets import SYNTHETIC
from reproduction.runner import Context, Results, run_cells
from reproduction.synthetic import (
    CurveCell,
    EquivalenceCell,
    class_connectivities,
    pack_picture,
    unpack_picture,
)
from selfexpress.datasets.synthetic import make_subspaces
from selfexpress.metrics import connectivity

SMALL = replace(SYNTHETIC, hidden_sizes=(64,), n_embedding=64, max_iter=60, n_init=2)


@pytest.fixture
def context(tmp_path) -> Context:
    return Context(torch.device("cpu"), tmp_path)


def test_objective_parts_are_the_papers_sums():
    coefficients = sparse.csr_array(np.array([[0, 2.0], [-1.0, 0]]))
    X = np.array([[1.0, 0], [0, 1.0]])
    # Residuals (1, -2) and (1, 1): 5 + 2; penalty 0.9 * 3 + 0.05 * 5.
    parts = objective_parts(coefficients, X, SYNTHETIC)
    assert parts["reconstruction"] == pytest.approx(7)
    assert parts["penalty"] == pytest.approx(2.95)
    assert parts["objective"] == pytest.approx(25 * 7 + 2.95)


def test_histories_are_thinned_to_means_between_marks():
    history = {"objective": np.arange(10.0), "penalty": np.ones(10)}
    found = thinned(history, 5)
    assert found["step"] == [2, 4, 6, 8, 10]
    assert found["objective"] == [0.5, 2.5, 4.5, 6.5, 8.5]
    assert thinned(history)["objective"] == list(range(10))


def test_pictures_are_sorted_by_class_and_survive_packing():
    coefficients = sparse.csr_array(np.eye(4)[[2, 3, 0, 1]])
    picture = unpack_picture(pack_picture(coefficients, np.array([0, 1, 0, 1])))
    assert picture.shape == (4, 4)
    # Points 0 and 2 come first and express each other, as do 1 and 3.
    expected = np.kron(np.eye(2), [[0, 1], [1, 0]])
    assert (picture == 255 * expected).all()


def test_the_least_connected_class_is_what_connectivity_reports():
    pair = np.array([[0, 1], [1, 0]])  # second eigenvalue 2
    triangle = np.ones((3, 3)) - np.eye(3)  # 1.5
    affinity = sparse.csr_array(sparse.block_diag([pair, triangle]))
    truth = np.array([0, 0, 1, 1, 1])
    found = class_connectivities(affinity, truth)
    assert found == pytest.approx([2, 1.5])
    assert min(found) == pytest.approx(connectivity(affinity, truth))


def test_table_1_compares_the_network_with_the_optimum(context, seed, tmp_path):
    cell = EquivalenceCell(recipe=SMALL, n_samples=12, seed=seed)
    results = Results(tmp_path / "records")
    run_cells([cell], results, context)
    (record,) = results.of(cell)
    found = record["metrics"]
    assert found["kkt_violation"] <= cell.tol
    assert found["gap"] > 0
    senet, ensc = found["senet"], found["ensc"]
    assert found["gap"] == pytest.approx(senet["objective"] / ensc["objective"] - 1)
    assert ensc["connectivity"] <= ensc["mean_connectivity"] + 1e-9
    assert 0 <= senet["sre"] <= 1


def test_unseen_points_lie_on_the_same_subspaces_and_are_others(seed):
    points = EquivalenceCell(recipe=SMALL, n_samples=8, seed=seed)._points()
    for name in range(5):
        train = points.train[points.train_labels == name]
        unseen = points.unseen[points.unseen_labels == name]
        together = np.vstack([train, unseen])
        assert np.linalg.matrix_rank(together, tol=1e-8) == 6
        assert not np.isclose(train @ unseen.T, 1).any()


def test_curves_hold_every_step_and_pictures_of_one_seed(context, tmp_path):
    cell = CurveCell(recipe=SMALL, steps=(20, 60), n_samples=12, has_pictures=True)
    results = Results(tmp_path / "records")
    run_cells([cell, replace(cell, seed=1)], results, context)
    first, second = results.of(cell)
    assert [look["step"] for look in first["metrics"]["curve"]] == [20, 60]
    assert unpack_picture(first["metrics"]["curve"][0]["train"]["picture"]).any()
    assert "picture" not in second["metrics"]["curve"][0]["train"]
    objectives = [look["train"]["objective"] for look in first["metrics"]["curve"]]
    assert objectives[1] < objectives[0]


def test_halves_share_no_point():
    points = CurveCell(recipe=SMALL, steps=(), n_samples=12)._points()
    data = make_subspaces(5, dimension=6, n_features=15, n_samples=12, random_state=0)
    together = np.vstack([points.train, points.unseen])
    assert len(points.train) == len(points.unseen) == 30
    assert {tuple(row) for row in together} == {tuple(row) for row in data.X}
