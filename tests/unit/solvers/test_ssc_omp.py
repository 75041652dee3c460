from __future__ import annotations

import numpy as np
import pytest
import torch
from problems import unit_data
from sklearn.linear_model import orthogonal_mp

from selfexpress.errors import ConfigError
from selfexpress.solvers import correlation_scan
from selfexpress.solvers.ssc_omp import PursuitConfig, pursuit_coefficients


@pytest.fixture(params=["compiled", "torch"], autouse=True)
def path(request, monkeypatch):
    is_compiled = request.param == "compiled"
    monkeypatch.setattr(correlation_scan, "has_numba", lambda: is_compiled)


def literal(rows, j, **stop):
    """scikit-learn's pursuit of row j among all others."""
    others = np.delete(np.arange(len(rows)), j)
    found = np.zeros(len(rows))
    found[others] = orthogonal_mp(rows[others].T.numpy(), rows[j].numpy(), **stop)
    return found


def assert_same(coefficients, rows, **stop):
    for j in range(len(rows)):
        actual, expected = coefficients[[j]].toarray()[0], literal(rows, j, **stop)
        np.testing.assert_array_equal(actual != 0, expected != 0)
        np.testing.assert_allclose(actual, expected, rtol=1e-7, atol=1e-12)


# One row or block at a time, ragged ones, all at once.
@pytest.mark.parametrize(("batch_size", "block_size"), [(1, 7), (13, 20), (99, 99)])
def test_pursuits_agree_with_scikit_learn(batch_size, block_size, seed):
    rows = unit_data(40, 20, seed=seed)
    config = PursuitConfig(n_nonzero=6, batch_size=batch_size, block_size=block_size)
    coefficients = pursuit_coefficients(rows, config)
    assert_same(coefficients, rows, n_nonzero_coefs=6)


def test_pursuits_stop_at_the_squared_residual(seed):
    rows = unit_data(40, 8, seed=seed)
    coefficients = pursuit_coefficients(rows, PursuitConfig(n_nonzero=39, tol=0.1))
    assert_same(coefficients, rows, tol=0.1)


def test_what_is_left_is_compared_with_the_row(seed):
    rows = unit_data(40, 8, seed=seed)
    config = PursuitConfig(n_nonzero=39, tol=0.1)
    expected = pursuit_coefficients(rows, config).toarray()
    actual = pursuit_coefficients(100 * rows, config).toarray()
    np.testing.assert_allclose(actual, expected, atol=1e-12)


def test_points_of_a_subspace_are_expressed_exactly(seed):
    basis = unit_data(3, 20, seed=seed)
    rows = unit_data(15, 3, seed=seed + 1) @ basis
    coefficients = pursuit_coefficients(rows, PursuitConfig(tol=1e-20))
    # Three rows span the subspace: the pursuit ends with them, not with ten.
    assert np.diff(coefficients.indptr).max() == 3
    np.testing.assert_allclose(coefficients @ rows.numpy(), rows, atol=1e-9)


def test_a_duplicate_alone_expresses_a_row(seed):
    rows = unit_data(10, 6, seed=seed)
    rows = torch.cat([rows, rows[:1]])
    coefficients = pursuit_coefficients(rows, PursuitConfig())
    assert coefficients[[0]].indices.tolist() == [10]
    assert coefficients[0, 10] == pytest.approx(1)


def test_zero_rows_express_nobody_and_are_expressed_by_nobody(seed):
    rows = unit_data(12, 6, seed=seed)
    rows[5] = 0
    dense = pursuit_coefficients(rows, PursuitConfig()).toarray()
    assert (dense[5] == 0).all()
    assert (dense[:, 5] == 0).all()


def test_orthogonal_rows_get_no_coefficients():
    rows = torch.eye(4, dtype=torch.float64)
    assert pursuit_coefficients(rows, PursuitConfig()).nnz == 0


def test_fewer_rows_than_nonzeros_are_all_used(seed):
    rows = unit_data(4, 9, seed=seed)
    coefficients = pursuit_coefficients(rows, PursuitConfig(n_nonzero=10))
    assert (np.diff(coefficients.indptr) == 3).all()
    # With all others picked, a pursuit is least squares.
    for j in range(4):
        others = np.delete(np.arange(4), j)
        expected = np.linalg.lstsq(rows[others].T.numpy(), rows[j].numpy())[0]
        np.testing.assert_allclose(coefficients[[j]].toarray()[0, others], expected)


def test_progress_counts_rows(seed):
    calls = []
    rows, config = unit_data(10, 6, seed=seed), PursuitConfig(batch_size=6)
    pursuit_coefficients(rows, config, progress=lambda *call: calls.append(call))
    assert calls == [(6, 10), (10, 10)]


@pytest.mark.parametrize(
    ("setting", "value"),
    [("n_nonzero", 0), ("tol", 0.0), ("batch_size", 0), ("block_size", 1.5)],
)
def test_bad_settings_are_refused_by_name(setting, value):
    with pytest.raises(ConfigError, match=setting):
        PursuitConfig(**{setting: value})


@pytest.mark.gpu
def test_a_gpu_finds_the_same_pursuits(seed):
    rows = unit_data(300, 20, seed=seed)
    config = PursuitConfig(n_nonzero=6)
    expected = pursuit_coefficients(rows, config).toarray()
    actual = pursuit_coefficients(rows.cuda(), config).toarray()
    np.testing.assert_allclose(actual, expected, atol=1e-9)
