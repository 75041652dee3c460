from __future__ import annotations

import numpy as np
import pytest
import torch
from problems import unit_data
from sklearn.linear_model import ElasticNet

from selfexpress.errors import ConfigError
from selfexpress.solvers import esc, small_problems
from selfexpress.solvers.esc import exemplar_expression, farthest_first
from selfexpress.solvers.problem import ElasticNetConfig


def literal_cost(row, exemplars, *, gamma, l1_ratio):
    solver = ElasticNet(
        alpha=1 / (gamma * len(row)),
        l1_ratio=l1_ratio,
        fit_intercept=False,
        tol=1e-12,
        max_iter=1_000_000,
    )
    c = solver.fit(exemplars.T, row).coef_
    residual = row - c @ exemplars
    penalty = l1_ratio * np.abs(c).sum() + (1 - l1_ratio) / 2 * c @ c
    return gamma / 2 * residual @ residual + penalty


def literal_search(rows, n_exemplars, *, first, **weights):
    """Algorithm 1 as published: every cost anew for every exemplar.

    Rows that no exemplar helps have the same cost up to rounding: the first is taken.
    """
    chosen = [first]
    while len(chosen) < n_exemplars:
        costs = [
            -np.inf if j in chosen else literal_cost(row, rows[chosen], **weights)
            for j, row in enumerate(rows)
        ]
        chosen.append(int(np.argmax(costs >= (1 - 1e-9) * np.max(costs))))
    return chosen


@pytest.mark.parametrize("l1_ratio", [1.0, 0.8])
@pytest.mark.parametrize("is_compiled", [True, False])
def test_exemplars_agree_with_a_literal_search(
    l1_ratio, is_compiled, seed, monkeypatch
):
    monkeypatch.setattr(small_problems, "has_numba", lambda: is_compiled)
    monkeypatch.setattr(esc, "FIRST_BATCH", {"cpu": 4})
    rows = unit_data(30, 6, seed=seed)
    weights = {"gamma": 20.0, "l1_ratio": l1_ratio}
    actual = farthest_first(rows, 8, ElasticNetConfig(**weights), first=11)
    assert actual.tolist() == literal_search(rows.numpy(), 8, first=11, **weights)


def test_bounds_save_most_of_the_work(seed, monkeypatch):
    n_solved = 0
    update = esc._Costs.update

    def counted(self, batch):
        nonlocal n_solved
        n_solved += len(batch)
        update(self, batch)

    monkeypatch.setattr(esc._Costs, "update", counted)
    monkeypatch.setattr(esc, "FIRST_BATCH", {"cpu": 1})
    rows = torch.cat([unit_data(100, 3, seed=seed), torch.zeros(100, 9)], dim=1)
    rows = torch.cat([rows, rows[:, [3, 4, 5, 0, 1, 2, 6, 7, 8, 9, 10, 11]]])
    farthest_first(rows.double(), 20, ElasticNetConfig(l1_ratio=1.0), first=0)
    assert n_solved < 0.6 * 20 * len(rows)


def test_expression_is_optimal_over_the_exemplars_and_covers_all_rows(seed):
    rows = unit_data(30, 6, seed=seed)
    config = ElasticNetConfig(gamma=20.0, l1_ratio=1.0, tol=1e-9)
    result = exemplar_expression(rows, 5, config, seed=seed)
    assert len(set(result.exemplars.tolist())) == 5
    assert result.expression.coefficients.shape == (30, 5)
    for j in range(30):
        atoms = rows[result.exemplars].numpy()
        cost = literal_cost(rows[j].numpy(), atoms, gamma=20.0, l1_ratio=1.0)
        assert result.expression.objective[j] == pytest.approx(cost, rel=1e-6)
    own = result.expression.coefficients[result.exemplars].toarray()
    np.testing.assert_allclose(own, (1 - 1 / 20) * np.eye(5), atol=1e-8)


def test_seed_chooses_the_first_exemplar_and_nothing_else_is_random(seed):
    rows = unit_data(30, 6, seed=seed)
    config = ElasticNetConfig(gamma=20.0, l1_ratio=1.0)
    first = exemplar_expression(rows, 5, config, seed=seed).exemplars
    again = exemplar_expression(rows, 5, config, seed=seed).exemplars
    assert first.tolist() == again.tolist()
    assert first[0] == np.random.default_rng(seed).integers(30)


def test_more_exemplars_than_rows_are_all_rows(seed):
    rows = unit_data(6, 4, seed=seed)
    config = ElasticNetConfig(gamma=20.0, l1_ratio=1.0)
    result = exemplar_expression(rows, 100, config, seed=0)
    assert sorted(result.exemplars.tolist()) == list(range(6))


def test_zero_rows_and_duplicates_are_chosen_last(seed):
    rows = unit_data(10, 6, seed=seed)
    rows = torch.cat([rows, rows[:3], torch.zeros(2, 6, dtype=torch.float64)])
    config = ElasticNetConfig(gamma=20.0, l1_ratio=1.0)
    calls = []
    chosen = farthest_first(
        rows, 15, config, first=0, progress=lambda *call: calls.append(call)
    )
    assert sorted(chosen.tolist()) == list(range(15))
    assert set(chosen[-2:].tolist()) == {13, 14}
    assert calls[-1] == (15, 15)


@pytest.mark.parametrize("bad", [{"gamma_scale": "relative"}, {"l1_ratio": 0.0}])
def test_costs_that_cannot_be_compared_are_refused(bad, seed):
    rows = unit_data(10, 6, seed=seed)
    with pytest.raises(ConfigError, match="exemplar search"):
        exemplar_expression(rows, 3, ElasticNetConfig(**bad), seed=0)
    with pytest.raises(ConfigError, match="n_exemplars"):
        exemplar_expression(rows, 0, ElasticNetConfig(), seed=0)
