from __future__ import annotations

import numpy as np
import pytest
import torch
from problems import unit_data
from sklearn.linear_model import ElasticNet
from torch.utils._python_dispatch import TorchDispatchMode

from selfexpress.errors import ConfigError, ConvergenceWarning
from selfexpress.ops.self_expression import unit_rows
from selfexpress.solvers import active_set, correlation_scan, small_problems
from selfexpress.solvers.certificate import certify
from selfexpress.solvers.ensc import dictionary_expression, elastic_net_expression
from selfexpress.solvers.problem import ElasticNetConfig

EXACT = {"gamma": 50.0, "l1_ratio": 0.9, "tol": 1e-9}


def coherent_data(n_samples: int, n_features: int, *, seed: int) -> torch.Tensor:
    """Unit rows with a common part, so that every row correlates with every other."""
    return unit_rows(unit_data(n_samples, n_features, seed=seed) + 0.2)


def scikit_learn_coefficients(rows, target, *, gamma, l1_ratio):
    """Solve one row; the objective there is ours divided by gamma * n_features."""
    solver = ElasticNet(
        alpha=1 / (gamma * rows.shape[1]),
        l1_ratio=l1_ratio,
        fit_intercept=False,
        tol=1e-14,
        max_iter=1_000_000,
    )
    return solver.fit(rows.T, target).coef_


def literal_objective(rows, target, c, *, gamma, l1_ratio):
    residual = target - c @ rows
    l1_norm, l2_norm = np.abs(c).sum(), (c**2).sum()
    penalty = l1_ratio * l1_norm + (1 - l1_ratio) / 2 * l2_norm
    return gamma / 2 * (residual**2).sum() + penalty


@pytest.fixture(params=["compiled", "torch"])
def path(request, monkeypatch):
    """Compiled kernels, or the operations a GPU would do, and many small rounds."""
    for module in (small_problems, correlation_scan, active_set):
        monkeypatch.setattr(module, "has_numba", lambda: request.param == "compiled")
    monkeypatch.setattr(active_set, "N_FIRST", 16)
    monkeypatch.setattr(active_set, "N_JOINING", 8)
    return request.param


@pytest.mark.parametrize("l1_ratio", [0.5, 0.9, 1.0])
def test_coefficients_and_objective_agree_with_scikit_learn(path, l1_ratio, seed):
    rows = coherent_data(60, 20, seed=seed)
    config = ElasticNetConfig(gamma=50.0, l1_ratio=l1_ratio, tol=1e-9)
    result = elastic_net_expression(rows, config)
    weights = {"gamma": 50.0, "l1_ratio": l1_ratio}
    dense = result.coefficients.toarray()
    for j in range(0, 60, 7):
        others = np.delete(np.arange(60), j)
        atoms, target = rows[others].numpy(), rows[j].numpy()
        expected = scikit_learn_coefficients(atoms, target, **weights)
        np.testing.assert_allclose(dense[j, others], expected, rtol=0, atol=1e-6)
        least = literal_objective(atoms, target, expected, **weights)
        assert result.objective[j] == pytest.approx(least, rel=1e-6)
        assert dense[j, j] == 0


@pytest.mark.parametrize("l1_ratio", [0.3, 0.9, 1.0])
@pytest.mark.parametrize("tol", [1e-2, 1e-6])
def test_every_row_meets_the_requested_tolerance(path, l1_ratio, tol, seed):
    rows = coherent_data(120, 15, seed=seed)
    config = ElasticNetConfig(gamma=80.0, l1_ratio=l1_ratio, tol=tol)
    result = elastic_net_expression(rows, config)
    proof = certify(rows, result.coefficients, gamma=80.0, l1_ratio=l1_ratio)
    assert proof.violation.max() <= tol
    assert (proof.gap <= tol * proof.objective).all()
    np.testing.assert_allclose(result.objective, proof.objective, rtol=1e-12)
    np.testing.assert_allclose(result.kkt_violation, proof.violation, atol=1e-11)


def test_float32_rows_meet_the_tolerance_in_float64(path, seed):
    rows = coherent_data(150, 40, seed=seed).float()
    config = ElasticNetConfig(gamma=200.0, l1_ratio=0.9, tol=1e-3)
    result = elastic_net_expression(rows, config)
    proof = certify(rows, result.coefficients, gamma=200.0, l1_ratio=0.9)
    assert proof.violation.max() <= 1e-3
    assert result.coefficients.dtype == np.float32


# One row or block at a time, ragged last ones, all at once.
@pytest.mark.parametrize(("batch_size", "block_size"), [(1, 7), (4, 40), (500, 500)])
def test_batches_and_blocks_do_not_change_the_solution(
    path, batch_size, block_size, seed
):
    rows, index = coherent_data(90, 12, seed=seed), torch.arange(0, 90, 9)
    expected = elastic_net_expression(rows, ElasticNetConfig(**EXACT), index=index)
    config = ElasticNetConfig(**EXACT, batch_size=batch_size, block_size=block_size)
    actual = elastic_net_expression(rows, config, index=index)
    np.testing.assert_allclose(
        actual.coefficients.toarray(), expected.coefficients.toarray(), atol=1e-8
    )


def test_some_rows_alone_equal_the_same_rows_among_all(seed):
    rows = coherent_data(80, 10, seed=seed)
    config = ElasticNetConfig(**EXACT)
    index = torch.tensor([70, 3, 42])
    some = elastic_net_expression(rows, config, index=index)
    everything = elastic_net_expression(rows, config)
    np.testing.assert_allclose(
        some.coefficients.toarray(),
        everything.coefficients.toarray()[index.numpy()],
        atol=1e-9,
    )


def test_relative_gamma_one_is_the_edge_of_the_zero_solution(path, seed):
    rows = coherent_data(50, 8, seed=seed)
    scale = {"l1_ratio": 0.9, "gamma_scale": "relative", "tol": 1e-9}
    below = elastic_net_expression(rows, ElasticNetConfig(gamma=1 - 1e-6, **scale))
    above = elastic_net_expression(rows, ElasticNetConfig(gamma=1.01, **scale))
    assert below.coefficients.nnz == 0
    assert (np.diff(above.coefficients.indptr) >= 1).all()


def test_relative_gamma_is_the_published_multiple_of_a_row(seed):
    rows = coherent_data(40, 8, seed=seed)
    products = (rows @ rows.T).abs().fill_diagonal_(0)
    relative = ElasticNetConfig(
        gamma=30.0, l1_ratio=0.9, gamma_scale="relative", tol=1e-9
    )
    actual = elastic_net_expression(rows, relative, index=torch.tensor([5]))
    gamma = 30.0 * 0.9 / float(products[5].max())
    absolute = ElasticNetConfig(gamma=gamma, l1_ratio=0.9, tol=1e-9)
    expected = elastic_net_expression(rows, absolute, index=torch.tensor([5]))
    np.testing.assert_allclose(
        actual.coefficients.toarray(), expected.coefficients.toarray(), atol=1e-9
    )


def test_zero_rows_express_nobody_and_are_expressed_by_nobody(path, seed):
    rows = coherent_data(40, 8, seed=seed)
    rows[[3, 17]] = 0
    for scale in ("absolute", "relative"):
        config = ElasticNetConfig(gamma=50.0, gamma_scale=scale, tol=1e-8)
        result = elastic_net_expression(rows, config)
        dense = result.coefficients.toarray()
        assert (dense[[3, 17]] == 0).all()
        assert (dense[:, [3, 17]] == 0).all()
        assert result.kkt_violation.max() <= 1e-8


def test_duplicates_share_the_weight_of_the_l2_norm(path, seed):
    rows = coherent_data(30, 8, seed=seed)
    rows = torch.cat([rows, rows[:1], rows[:1]])
    dense = elastic_net_expression(rows, ElasticNetConfig(**EXACT)).coefficients
    # Rows 30 and 31 equal row 0; a strictly convex penalty gives equals equal weight.
    np.testing.assert_allclose(dense[5:30, [30]].toarray(), dense[5:30, [31]].toarray())
    assert dense[0, 30] == pytest.approx(dense[0, 31])
    assert dense[0, 30] > 0.3


def test_all_rows_equal_is_solved_for_the_pure_l1_norm(path):
    rows = torch.ones(20, 4, dtype=torch.float64) / 2
    config = ElasticNetConfig(gamma=10.0, l1_ratio=1.0, tol=1e-8)
    result = elastic_net_expression(rows, config)
    # |c|_1 = 1 - 1/gamma reaches gamma/2 * gamma^-2 + 1 - 1/gamma.
    np.testing.assert_allclose(result.objective, 0.95, rtol=1e-7)


def test_two_rows_match_the_formula_by_hand(path):
    angle = 0.3
    rows = torch.tensor([[1.0, 0.0], [np.cos(angle), np.sin(angle)]]).double()
    result = elastic_net_expression(rows, ElasticNetConfig(gamma=20.0, tol=1e-10))
    expected = (20 * np.cos(angle) - 0.9) / (20 + 0.1)
    assert result.coefficients[0, 1] == pytest.approx(expected)
    assert result.coefficients[1, 0] == pytest.approx(expected)


def test_n_nonzero_keeps_the_largest_of_each_row(seed):
    rows = coherent_data(60, 20, seed=seed)
    full = elastic_net_expression(rows, ElasticNetConfig(**EXACT))
    kept = elastic_net_expression(rows, ElasticNetConfig(**EXACT, n_nonzero=3))
    for j in range(60):
        row = np.abs(full.coefficients[[j]].toarray()[0])
        columns = kept.coefficients[[j]].indices
        assert set(columns) == set(np.argsort(-row)[: min(3, (row > 0).sum())])
    np.testing.assert_array_equal(kept.kkt_violation, full.kkt_violation)


def test_more_nonzeros_than_rows_are_no_error(seed):
    rows = coherent_data(5, 8, seed=seed)
    result = elastic_net_expression(rows, ElasticNetConfig(**EXACT, n_nonzero=1000))
    assert result.coefficients.shape == (5, 5)


def test_too_few_rounds_warn_with_rows_and_worst_value(seed):
    rows = coherent_data(200, 40, seed=seed)
    config = ElasticNetConfig(gamma=500.0, l1_ratio=0.9, tol=1e-8, max_iter=1)
    with pytest.warns(ConvergenceWarning, match=r"\d+ of 200 rows .* violation up to"):
        result = elastic_net_expression(rows, config)
    assert result.kkt_violation.max() > 1e-8
    proof = certify(rows, result.coefficients, gamma=500.0, l1_ratio=0.9)
    np.testing.assert_allclose(result.kkt_violation, proof.violation, rtol=1e-6)


def test_a_dictionary_may_hold_the_row_itself(seed):
    rows = coherent_data(30, 40, seed=seed)
    config = ElasticNetConfig(gamma=50.0, l1_ratio=1.0, tol=1e-9)
    result = dictionary_expression(rows, rows[:10], config)
    assert result.coefficients.shape == (30, 10)
    # A unit row expressed by itself: 1 - 1/gamma, and nothing is better.
    expected = (1 - 1 / 50) * np.eye(10)
    np.testing.assert_allclose(result.coefficients[:10].toarray(), expected, atol=1e-8)


def test_progress_counts_rows(seed):
    calls = []
    config = ElasticNetConfig(**EXACT, batch_size=8)
    rows = coherent_data(20, 5, seed=seed)
    elastic_net_expression(rows, config, progress=lambda *call: calls.append(call))
    assert calls == [(8, 20), (16, 20), (20, 20)]


class LargestTensor(TorchDispatchMode):
    """Notes the most entries any tensor has that is made inside, the data aside."""

    def __init__(self, data):
        super().__init__()
        self.data = data.untyped_storage().data_ptr()
        self.entries = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        result = function(*arguments, **(keywords or {}))
        for part in result if isinstance(result, (tuple, list)) else [result]:
            if not isinstance(part, torch.Tensor):
                continue
            # Views of the data take no memory.
            if part.untyped_storage().data_ptr() != self.data:
                self.entries = max(self.entries, part.numel())
        return result


def test_memory_does_not_grow_with_the_number_of_rows(path, seed):
    largest = []
    for n_samples in (200, 800):
        rows = coherent_data(n_samples, 10, seed=seed)
        config = ElasticNetConfig(gamma=50.0, batch_size=16, block_size=64, tol=1e-4)
        with LargestTensor(rows) as mode:
            elastic_net_expression(rows, config, index=torch.arange(32))
        largest.append(mode.entries)
    # Working sets may differ a little; all pairs would be 16 times as many.
    assert largest[1] <= 1.5 * largest[0]


def test_products_stay_exact_where_the_program_asks_for_tf32(seed):
    torch.set_float32_matmul_precision("medium")
    try:
        rows = coherent_data(60, 40, seed=seed).float()
        config = ElasticNetConfig(gamma=200.0, tol=1e-3)
        result = elastic_net_expression(rows, config)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    proof = certify(rows, result.coefficients, gamma=200.0, l1_ratio=0.9)
    assert proof.violation.max() <= 1e-3


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("gamma", 0.0),
        ("gamma", float("nan")),
        ("l1_ratio", 1.5),
        ("l1_ratio", -0.1),
        ("gamma_scale", "percent"),
        ("tol", 0.0),
        ("max_iter", 0),
        ("n_nonzero", 0),
        ("batch_size", 0),
        ("block_size", -3),
    ],
)
def test_bad_settings_are_refused_by_name(setting, value):
    with pytest.raises(ConfigError, match=setting):
        ElasticNetConfig(**{setting: value})


def test_relative_gamma_needs_an_l1_norm():
    with pytest.raises(ConfigError, match="gamma_scale must be 'absolute'"):
        ElasticNetConfig(l1_ratio=0.0, gamma_scale="relative")


@pytest.mark.gpu
def test_a_gpu_finds_the_same_solution(seed):
    rows = coherent_data(500, 20, seed=seed)
    config = ElasticNetConfig(**EXACT)
    expected = elastic_net_expression(rows, config).coefficients.toarray()
    actual = elastic_net_expression(rows.cuda(), config).coefficients.toarray()
    np.testing.assert_allclose(actual, expected, atol=1e-7)
