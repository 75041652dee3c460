from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from problems import unit_data
from sklearn.linear_model import ElasticNet

from selfexpress.config import TrainConfig
from selfexpress.errors import DegenerateError
from selfexpress.rows.sources import ArraySource
from selfexpress.training.choices import choose_gamma, choose_graph
from selfexpress.training.gamma import (
    SmallestGamma,
    require_large_enough,
    smallest_gamma,
)


def solve(rows, j, gamma, l1_ratio):
    """Row j's exact coefficients by scikit-learn, in its scaling of the objective."""
    n_features = rows.shape[1]
    others = np.delete(rows, j, axis=0)
    model = ElasticNet(
        alpha=1 / (gamma * n_features),
        l1_ratio=l1_ratio,
        fit_intercept=False,
        tol=1e-12,
        max_iter=100_000,
    )
    return model.fit(others.T, rows[j]).coef_


def test_bounds_are_where_exact_solutions_start_to_be_non_zero(seed):
    rows = unit_data(12, 4, seed=seed)
    source = ArraySource(rows, dtype=torch.float64)
    bound = smallest_gamma(source, 0.9, block_size=5)
    array = rows.numpy()
    below = [solve(array, j, bound.any_row * 0.999, 0.9) for j in range(12)]
    above = [solve(array, j, bound.any_row * 1.001, 0.9) for j in range(12)]
    every = [solve(array, j, bound.every_row * 1.001, 0.9) for j in range(12)]
    assert not any(c.any() for c in below)
    assert any(c.any() for c in above)
    assert all(c.any() for c in every)


def test_a_gamma_below_the_bound_is_refused_with_the_one_that_works():
    bound = SmallestGamma(any_row=1.25, every_row=4.5, typical=2.0, is_exact=True)
    message = r"gamma must exceed 1\.25.*4\.5 for every row.*got 1\..*example 100\."
    with pytest.raises(DegenerateError, match=message):
        require_large_enough(1.0, bound)
    require_large_enough(1.3, bound)
    require_large_enough(1.0, replace(bound, is_exact=False))


def test_orthogonal_rows_have_no_gamma():
    source = ArraySource(torch.eye(4))
    bound = smallest_gamma(source, 0.9, block_size=2)
    with pytest.raises(DegenerateError, match="orthogonal"):
        require_large_enough(1e9, bound)


@pytest.mark.parametrize(
    ("start", "l1_ratio", "factor"),
    [
        ("random", 0.9, 100),
        ("random", 0.3, 100),
        ("alike", 0.9, 30),
        ("alike", 0.3, 10),
    ],
)
def test_auto_is_relative_and_follows_start_and_penalty(start, l1_ratio, factor):
    bound = SmallestGamma(any_row=1.0, every_row=4.0, typical=2.0, is_exact=True)
    config = TrainConfig(start=start, l1_ratio=l1_ratio)
    chosen = choose_gamma("auto", "absolute", bound, config)
    assert chosen == pytest.approx(factor * 2.0)


def test_a_relative_gamma_is_a_multiple_of_what_a_typical_row_needs():
    bound = SmallestGamma(any_row=1.0, every_row=4.0, typical=2.0, is_exact=True)
    assert choose_gamma(7.0, "relative", bound, TrainConfig()) == 14.0
    assert choose_gamma(7.0, "absolute", bound, TrainConfig()) == 7.0
    without = SmallestGamma(math.inf, math.inf, math.inf, is_exact=True)
    assert choose_gamma(7.0, "relative", without, TrainConfig()) == 7.0


@pytest.mark.parametrize(
    ("n_clusters", "n_rows", "is_few"),
    [
        (2, 300, True),
        (np.int64(3), 1999, True),
        (3, 2000, False),
        (4, 300, False),
        ("auto", 300, False),
        (None, 300, False),
    ],
)
def test_few_clusters_of_few_rows_have_a_denser_graph(n_clusters, n_rows, is_few):
    dense = {"l1_ratio": 0.3, "affinity": "squared_cosines"}
    sparse = {"l1_ratio": 0.9, "affinity": "symmetric"}
    assert choose_graph(n_clusters, n_rows) == (dense if is_few else sparse)
