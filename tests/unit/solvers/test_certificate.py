from __future__ import annotations

import numpy as np
import pytest
import torch
from problems import unit_data
from scipy import sparse

from selfexpress.solvers.certificate import Certificate, certify


def literal_certificate(rows, coefficients, gamma, l1_ratio):
    """The definitions, one dense row at a time: violation, gap, objective."""
    found = []
    for j, c in enumerate(coefficients):
        others = np.delete(np.arange(len(rows)), j)
        atoms, c = rows[others], c[others]
        residual = rows[j] - c @ atoms
        slopes = gamma * atoms @ residual
        inside = np.abs(slopes - l1_ratio * np.sign(c) - (1 - l1_ratio) * c)
        violation = np.where(c != 0, inside, np.maximum(np.abs(slopes) - l1_ratio, 0))
        objective = (
            gamma / 2 * residual @ residual
            + l1_ratio * np.abs(c).sum()
            + (1 - l1_ratio) / 2 * c @ c
        )
        dual = literal_dual(rows[j], atoms, residual, gamma, l1_ratio)
        found.append((violation.max(), objective - dual, objective))
    return np.array(found).T


def literal_dual(target, atoms, residual, gamma, l1_ratio):
    """The dual objective at gamma * residual, shrunk to be feasible for l1_ratio 1."""
    point = gamma * residual
    slopes = np.abs(atoms @ point)
    if l1_ratio == 1:
        point = point / max(1, slopes.max())
        conjugate = 0.0
    else:
        over = np.maximum(slopes - l1_ratio, 0)
        conjugate = (over**2).sum() / (2 * (1 - l1_ratio))
    return point @ target - point @ point / (2 * gamma) - conjugate


def random_coefficients(n_samples, *, seed):
    generator = np.random.default_rng(seed)
    dense = generator.standard_normal((n_samples, n_samples)) / n_samples
    dense *= generator.random(dense.shape) < 0.2
    np.fill_diagonal(dense, 0)
    dense[3] = 0
    return dense


@pytest.mark.parametrize("l1_ratio", [0.4, 0.9, 1.0])
@pytest.mark.parametrize(("batch_size", "block_size"), [(7, 5), (100, 100)])
def test_certificate_equals_its_definition(l1_ratio, batch_size, block_size, seed):
    rows = unit_data(25, 6, seed=seed)
    dense = random_coefficients(25, seed=seed)
    proof = certify(
        rows,
        sparse.csr_array(dense),
        gamma=30.0,
        l1_ratio=l1_ratio,
        batch_size=batch_size,
        block_size=block_size,
    )
    expected = literal_certificate(rows.numpy(), dense, 30.0, l1_ratio)
    for actual, value in zip(
        (proof.violation, proof.gap, proof.objective), expected, strict=True
    ):
        np.testing.assert_allclose(actual, value, rtol=1e-9)


def test_every_row_may_have_its_own_gamma(seed):
    rows = unit_data(12, 5, seed=seed)
    dense = random_coefficients(12, seed=seed)
    gamma = np.linspace(5, 60, 12)
    proof = certify(rows, sparse.csr_array(dense), gamma=gamma, l1_ratio=0.9)
    for j in range(12):
        expected = literal_certificate(rows.numpy(), dense, gamma[j], 0.9)[:, j]
        actual = [proof.violation[j], proof.gap[j], proof.objective[j]]
        np.testing.assert_allclose(actual, expected, rtol=1e-9)


@pytest.mark.parametrize("l1_ratio", [0.4, 1.0])
def test_gap_bounds_the_distance_to_the_optimum(l1_ratio, seed):
    from selfexpress.solvers.ensc import elastic_net_expression
    from selfexpress.solvers.problem import ElasticNetConfig

    rows = unit_data(25, 6, seed=seed)
    config = ElasticNetConfig(gamma=30.0, l1_ratio=l1_ratio, tol=1e-10)
    least = elastic_net_expression(rows, config).objective
    dense = sparse.csr_array(random_coefficients(25, seed=seed))
    proof = certify(rows, dense, gamma=30.0, l1_ratio=l1_ratio)
    distance = proof.objective.numpy() - least
    assert (distance > 0).all()
    assert (proof.gap.numpy() >= distance).all()


def test_zero_coefficients_of_zero_rows_are_optimal():
    rows = torch.zeros(3, 4, dtype=torch.float64)
    proof = certify(rows, sparse.csr_array((3, 3)), gamma=10.0, l1_ratio=0.9)
    assert proof.violation.tolist() == [0, 0, 0]
    assert proof.gap.tolist() == [0, 0, 0]
    assert not proof.is_open(1e-9).any()


def test_rows_that_diverged_are_open():
    nan = torch.tensor([torch.nan], dtype=torch.float64)
    assert Certificate(nan, nan, nan).is_open(1e-3).all()
