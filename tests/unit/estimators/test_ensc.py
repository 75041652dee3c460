from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from compare import assert_same_partition

from selfexpress.datasets.synthetic import make_subspaces
from selfexpress.errors import ConfigError, DegenerateError
from selfexpress.estimators.ensc import EnSC
from selfexpress.ops.self_expression import unit_rows
from selfexpress.rows.sources import ArraySource
from selfexpress.solvers.certificate import certify

# Clean subspaces may fall into more pieces than clusters; that is not tested here.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The affinity graph:selfexpress.errors.DegenerateWarning"
)


@pytest.fixture
def data(seed):
    return make_subspaces(
        3, dimension=5, n_features=25, n_samples=50, random_state=seed
    )


@pytest.mark.parametrize("affinity", ["nearest_neighbors", "symmetric"])
@pytest.mark.parametrize("l1_ratio", [0.9, 1.0, 0.0])
def test_subspaces_are_found(data, affinity, l1_ratio, seed):
    model = EnSC(
        3,
        gamma=50.0,
        l1_ratio=l1_ratio,
        n_nonzero=10,
        affinity=affinity,
        n_neighbors=5,
        random_state=seed,
    )
    assert_same_partition(model.fit_predict(data.X), data.labels)
    assert set(model.timings_) == {"coefficients", "affinity", "spectral", "references"}
    assert model.embedding_.shape == (150, 3)
    assert (abs(model.affinity_matrix_ - model.affinity_matrix_.T)).max() == 0


def test_every_row_carries_its_certificate(data):
    model = EnSC(3, gamma=200.0, l1_ratio=0.9, tol=1e-4).fit(data.X)
    rows = unit_rows(torch.from_numpy(data.X).float())
    proof = certify(rows, model.coefficients_, gamma=200.0, l1_ratio=0.9)
    assert model.kkt_violation_.max() <= 1e-4
    assert proof.violation.max() <= 1e-4
    np.testing.assert_allclose(model.objective_, proof.objective, rtol=1e-5)
    assert model.duality_gap_.shape == (150,)
    assert model.n_iter_ >= 1


def test_a_fine_tolerance_switches_to_float64(data):
    model = EnSC(3, tol=1e-8).fit(data.X)
    assert model.coefficients_.dtype == np.float64
    assert model.kkt_violation_.max() <= 1e-8
    assert EnSC(3).fit(data.X).coefficients_.dtype == np.float32
    assert EnSC(3, precision="float64").fit(data.X).coefficients_.dtype == np.float64


def test_every_kind_of_input_gives_the_same_coefficients(data, tmp_path):
    expected = EnSC(3, tol=1e-6, random_state=0).fit(data.X).coefficients_.toarray()
    path = tmp_path / "rows.npy"
    np.save(path, data.X)
    for X in (
        pd.DataFrame(data.X),
        torch.from_numpy(data.X),
        np.load(path, mmap_mode="r"),
        ArraySource(data.X),
        5 * data.X,
    ):
        model = EnSC(3, tol=1e-6, random_state=0).fit(X)
        np.testing.assert_allclose(model.coefficients_.toarray(), expected, atol=1e-4)


def test_gamma_too_small_for_any_coefficient_is_an_error(data):
    with pytest.raises(DegenerateError, match="Raise gamma"):
        EnSC(3, gamma=0.5, l1_ratio=0.9).fit(data.X)


def test_relative_gamma_is_another_problem(data):
    relative = EnSC(3, gamma=50.0, gamma_scale="relative").fit(data.X)
    absolute = EnSC(3, gamma=50.0).fit(data.X)
    assert relative.objective_.mean() != pytest.approx(absolute.objective_.mean())


@pytest.mark.parametrize(
    "bad",
    [
        {"gamma": -1},
        {"l1_ratio": 2},
        {"precision": "half"},
        {"n_clusters": 0},
        {"n_clusters": 151},
        {"affinity": "cosine"},
        {"device": "abacus"},
        {"n_nonzero": 0},
    ],
)
def test_bad_settings_are_refused_by_name(data, bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        EnSC(**{"n_clusters": 3, **bad}).fit(data.X)


def test_verbose_shows_progress_on_stderr_only(data, capsys):
    EnSC(3, verbose=True).fit(data.X)
    captured = capsys.readouterr()
    assert "coefficients" in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_certificate_is_of_the_rows_given(data, dtype):
    X = data.X.astype(dtype)
    model = EnSC(3, gamma=2e4, l1_ratio=0.9, tol=1e-6, random_state=0).fit(X)
    rows = unit_rows(torch.from_numpy(X).double())
    residual = rows - torch.from_numpy(model.coefficients_.toarray()) @ rows
    g = 2e4 * (residual @ rows.T).numpy()
    c = model.coefficients_.toarray()
    wanted = np.where(c != 0, 0.9 * np.sign(c) + 0.1 * c, np.clip(g, -0.9, 0.9))
    violation = np.abs(g - wanted)
    np.fill_diagonal(violation, 0)
    assert violation.max() <= 1e-6


@pytest.mark.parametrize("gamma", [0.3, 1])
def test_a_relative_gamma_at_which_all_is_zero_is_refused(gamma, seed):
    data = make_subspaces(3, dimension=3, n_features=9, n_samples=25, random_state=seed)
    with pytest.raises(ConfigError, match="gamma must be above 1"):
        EnSC(3, gamma=gamma, gamma_scale="relative").fit(data.X)


def test_a_refused_fit_leaves_the_model_as_it_was(seed):
    data = make_subspaces(3, dimension=3, n_features=9, n_samples=25, random_state=seed)
    model = EnSC(3, random_state=0).fit(data.X)
    before = dict(model.timings_)
    with pytest.raises(ConfigError, match="n_clusters must be at most"):
        model.set_params(n_clusters=1000).fit(data.X[:, :5])
    assert model.n_features_in_ == 9
    assert model.timings_ == before


def test_more_neighbours_than_rows_are_all_rows(seed):
    data = make_subspaces(3, dimension=3, n_features=9, n_samples=25, random_state=seed)
    graphs = [
        EnSC(3, n_neighbors=n, random_state=0).fit(data.X).affinity_matrix_
        for n in (75, 10**12)
    ]
    assert (graphs[0] != graphs[1]).nnz == 0
