from __future__ import annotations

import numpy as np
import pytest
import torch
from problems import unit_data
from sklearn.linear_model import Ridge

from selfexpress.errors import ConvergenceWarning
from selfexpress.solvers import least_squares
from selfexpress.solvers.ensc import elastic_net_expression
from selfexpress.solvers.problem import ElasticNetConfig


# More rows than features, and fewer.
@pytest.mark.parametrize("shape", [(40, 10), (12, 30)])
def test_coefficients_agree_with_ridge_regression_without_the_row(shape, seed):
    rows = unit_data(*shape, seed=seed)
    config = ElasticNetConfig(gamma=20.0, l1_ratio=0.0)
    result = elastic_net_expression(rows, config)
    dense = result.coefficients.toarray()
    for j in range(0, shape[0], 5):
        others = np.delete(np.arange(shape[0]), j)
        ridge = Ridge(alpha=1 / 20.0, fit_intercept=False, solver="svd")
        expected = ridge.fit(rows[others].T.numpy(), rows[j].numpy()).coef_
        np.testing.assert_allclose(dense[j, others], expected, rtol=1e-9, atol=1e-12)
        residual = rows[j].numpy() - expected @ rows[others].numpy()
        objective = 10 * residual @ residual + expected @ expected / 2
        assert result.objective[j] == pytest.approx(objective)
        assert dense[j, j] == 0
    assert result.kkt_violation.max() < 1e-10
    assert result.duality_gap.max() < 1e-20


@pytest.mark.parametrize(("batch_size", "block_size"), [(1, 3), (7, 100)])
def test_the_largest_entries_survive_any_blocks(batch_size, block_size, seed):
    rows = unit_data(40, 10, seed=seed)
    full = elastic_net_expression(rows, ElasticNetConfig(l1_ratio=0.0))
    config = ElasticNetConfig(
        l1_ratio=0.0, n_nonzero=6, batch_size=batch_size, block_size=block_size
    )
    kept = elastic_net_expression(rows, config)
    for j in range(40):
        row = full.coefficients[[j]].toarray()[0]
        expected = np.sort(np.argsort(-np.abs(row))[:6])
        np.testing.assert_array_equal(kept.coefficients[[j]].indices, expected)
        np.testing.assert_allclose(kept.coefficients[[j]].data, row[expected])
    np.testing.assert_allclose(kept.objective, full.objective)


def test_some_rows_alone_equal_the_same_rows_among_all(seed):
    rows = unit_data(30, 8, seed=seed)
    config = ElasticNetConfig(l1_ratio=0.0)
    index = torch.tensor([20, 3])
    some = elastic_net_expression(rows, config, index=index).coefficients
    everything = elastic_net_expression(rows, config).coefficients
    np.testing.assert_allclose(some.toarray(), everything.toarray()[[20, 3]])


def test_a_thousand_entries_are_kept_unless_told(seed, monkeypatch):
    assert least_squares.DEFAULT_NONZERO == 1000
    monkeypatch.setattr(least_squares, "DEFAULT_NONZERO", 5)
    rows = unit_data(30, 8, seed=seed)
    result = elastic_net_expression(rows, ElasticNetConfig(l1_ratio=0.0))
    assert (np.diff(result.coefficients.indptr) == 5).all()


def test_zero_rows_get_no_coefficients(seed):
    rows = unit_data(20, 8, seed=seed)
    rows[4] = 0
    calls = []
    config = ElasticNetConfig(l1_ratio=0.0, batch_size=15)
    result = elastic_net_expression(
        rows, config, progress=lambda *call: calls.append(call)
    )
    assert result.coefficients[[4]].nnz == 0
    assert calls == [(15, 20), (20, 20)]


@pytest.mark.parametrize("shape", [(100, 700), (700, 100)])
def test_single_precision_is_enough_for_the_default_gamma(shape, seed):
    rows = unit_data(*shape, seed=seed).float()
    config = ElasticNetConfig(gamma=200.0, l1_ratio=0.0)
    assert elastic_net_expression(rows, config).kkt_violation.max() <= config.tol


def test_rounding_beyond_the_tolerance_is_told(seed):
    rows = unit_data(60, 20, seed=seed).float()
    with pytest.warns(ConvergenceWarning, match="rounding of a direct solution"):
        elastic_net_expression(rows, ElasticNetConfig(gamma=1e6, l1_ratio=0.0))
