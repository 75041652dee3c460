from __future__ import annotations

import pytest
import torch
from problems import unit_data

from selfexpress.solvers import small_problems
from selfexpress.solvers.small_problems import solve_small_problems

SOLVERS = ["compiled", "batched"]


@pytest.fixture(params=SOLVERS)
def solver(request, monkeypatch):
    """Either solver, behind the same function."""
    is_compiled = request.param == "compiled"
    monkeypatch.setattr(small_problems, "has_numba", lambda: is_compiled)
    return request.param


def solve(gram, linear, *, alpha, beta, tol=1e-12, sizes=None, start=None):
    n_problems, n_coordinates = linear.shape
    ones = torch.ones(n_problems, dtype=torch.float64)
    return solve_small_problems(
        gram,
        linear,
        torch.zeros_like(linear) if start is None else start,
        sizes=torch.full((n_problems,), n_coordinates) if sizes is None else sizes,
        alpha=alpha * ones,
        beta=beta * ones,
        tol=tol * ones,
    )


def correlated_problem(seed, n_problems=5, n_coordinates=30, n_features=12):
    """Rows with a large common part, as scattering features have."""
    rows = unit_data(n_problems * n_coordinates, n_features, seed=seed) + 0.5
    rows = rows.reshape(n_problems, n_coordinates, n_features)
    targets = unit_data(n_problems, n_features, seed=seed + 1) + 0.5
    return rows @ rows.mT, (rows @ targets[..., None])[..., 0]


def violation(gram, linear, c, alpha, beta):
    slopes = linear - (gram @ c[..., None])[..., 0] - beta * c
    inactive = slopes.abs() - alpha
    return torch.where(c != 0, (slopes - alpha * c.sign()).abs(), inactive).max()


def test_orthogonal_coordinates_are_soft_thresholded(solver):
    gram = torch.diag(torch.tensor([2.0, 1.0, 4.0], dtype=torch.float64))[None]
    linear = torch.tensor([[3.0, 0.4, -1.5]], dtype=torch.float64)
    # Entries are soft(h, 0.5) / (G + 0.5), for example 2.5 / 2.5 and -1 / 4.5.
    expected = torch.tensor([[1.0, 0.0, -1 / 4.5]], dtype=torch.float64)
    torch.testing.assert_close(solve(gram, linear, alpha=0.5, beta=0.5), expected)


@pytest.mark.parametrize("beta", [0.05, 1e-4, 0.0])
def test_optimality_conditions_hold(solver, beta, seed):
    gram, linear = correlated_problem(seed)
    solution = solve(gram, linear, alpha=0.02, beta=beta)
    assert violation(gram, linear, solution, 0.02, beta) < 1e-9
    assert (solution != 0).any(dim=1).all()


@pytest.mark.parametrize("beta", [0.05, 1e-4])
def test_both_solvers_find_the_same_minimiser(beta, seed, monkeypatch):
    gram, linear = correlated_problem(seed)
    compiled = solve(gram, linear, alpha=0.02, beta=beta)
    monkeypatch.setattr(small_problems, "has_numba", lambda: False)
    batched = solve(gram, linear, alpha=0.02, beta=beta)
    torch.testing.assert_close(compiled, batched, rtol=1e-6, atol=1e-9)


def test_start_does_not_change_the_minimiser(solver, seed):
    gram, linear = correlated_problem(seed)
    cold = solve(gram, linear, alpha=0.02, beta=0.01)
    start = torch.randn_like(linear)
    warm = solve(gram, linear, alpha=0.02, beta=0.01, start=start)
    torch.testing.assert_close(warm, cold, rtol=1e-6, atol=1e-9)


def test_padding_is_ignored_and_stays_zero(solver, seed):
    gram, linear = correlated_problem(seed)
    sizes = torch.tensor([30, 20, 1, 7, 30])
    solution = solve(
        gram, linear, alpha=0.02, beta=0.01, sizes=sizes, start=torch.zeros_like(linear)
    )
    for row, size in enumerate(sizes):
        alone = solve(
            gram[row : row + 1, :size, :size],
            linear[row : row + 1, :size],
            alpha=0.02,
            beta=0.01,
        )
        torch.testing.assert_close(
            solution[row : row + 1, :size], alone, rtol=1e-6, atol=1e-9
        )
        assert (solution[row, size:] == 0).all()


def test_one_gram_matrix_serves_all_problems(solver, seed):
    gram, linear = correlated_problem(seed)
    shared = solve(gram[:1], linear, alpha=0.02, beta=0.01)
    repeated = solve(gram[:1].repeat(5, 1, 1), linear, alpha=0.02, beta=0.01)
    torch.testing.assert_close(shared, repeated)


@pytest.mark.parametrize("width", [1, 3, 20])
def test_few_coordinates_of_a_shared_matrix_at_a_time_do(width, seed, monkeypatch):
    """Also from a start with more coefficients than that, and with padding."""
    gram, linear = correlated_problem(seed)
    start = unit_data(*linear.shape, seed=seed)
    sizes = torch.tensor([30, 20, 1, 7, 30])
    start[torch.arange(30) >= sizes[:, None]] = 0
    settings = {"alpha": 0.02, "beta": 0.01, "sizes": sizes, "start": start}
    expected = solve(gram[:1], linear, **settings)
    monkeypatch.setattr(small_problems, "has_numba", lambda: False)
    monkeypatch.setattr(small_problems, "_FIRST_WIDTH", width)
    found = solve(gram[:1], linear, **settings)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("beta", [0.01, 0.0])
def test_duplicate_and_zero_coordinates_are_solved(solver, beta, seed):
    rows = unit_data(8, 5, seed=seed)
    rows = torch.cat([rows, rows, torch.zeros(2, 5, dtype=torch.float64)])[None]
    target = unit_data(1, 5, seed=seed + 1)
    gram, linear = rows @ rows.mT, (rows @ target[..., None])[..., 0]
    solution = solve(gram, linear, alpha=0.05, beta=beta, tol=1e-10)
    assert violation(gram, linear, solution, 0.05, beta) < 1e-8
    assert (solution[0, 16:] == 0).all()


def test_large_threshold_gives_zero(solver, seed):
    gram, linear = correlated_problem(seed)
    alpha = float(linear.abs().max())
    assert (solve(gram, linear, alpha=alpha, beta=0.01) == 0).all()
