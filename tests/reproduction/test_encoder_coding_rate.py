from __future__ import annotations

import math

import pytest
import torch
from compare import assert_close

from reproduction.encoder.coding_rate import coding_rate, patch_loss, rate_bounds


def unit_rows(*shape, seed):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(rows, dim=-1)


def literal_rate(rows, distortion):
    """The definition, by the eigenvalues of the d x d matrix."""
    n_rows, n_features = rows.shape
    eigenvalues = torch.linalg.eigvalsh(rows.T @ rows).clamp(min=0)
    scaled = n_features / (n_rows * distortion) * eigenvalues
    return torch.log1p(scaled).sum() / 2


# Fewer rows than dimensions, as many, and more: both forms of the determinant.
@pytest.mark.parametrize("n_rows", [1, 5, 8, 20])
def test_coding_rate_equals_its_definition_by_eigenvalues(n_rows, seed):
    rows = unit_rows(n_rows, 8, seed=seed)
    assert_close(coding_rate(rows, 0.2), literal_rate(rows, 0.2))


def test_coding_rate_of_two_orthogonal_rows_is_as_worked_by_hand():
    # n = d = 2, e = 0.5: det(I + 2 / (2 * 0.5) I) = 3 * 3, half its logarithm is log 3.
    rate = coding_rate(torch.eye(2, dtype=torch.float64), 0.5)
    assert rate.item() == pytest.approx(math.log(3), rel=1e-12)


def test_coding_rate_of_three_equal_rows_is_as_worked_by_hand():
    # d = 2, n = 3, e = 0.5: one eigenvalue 3 * 2 / (3 * 0.5) = 4, so 1/2 log 5.
    rows = torch.tensor([[1.0, 0.0]], dtype=torch.float64).expand(3, 2)
    assert coding_rate(rows, 0.5).item() == pytest.approx(math.log(5) / 2, rel=1e-12)


@pytest.mark.parametrize("n_rows", [3, 9])
def test_coding_rate_treats_leading_axes_as_separate_sets(n_rows, seed):
    rows = unit_rows(4, n_rows, 6, seed=seed)
    separately = torch.stack([coding_rate(part, 0.2) for part in rows])
    assert_close(coding_rate(rows, 0.2), separately)


@pytest.mark.parametrize("n_rows", [4, 11])
def test_gradient_of_the_coding_rate_equals_finite_differences(n_rows, seed):
    rows = unit_rows(n_rows, 6, seed=seed).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: coding_rate(z, 0.2), rows)


@pytest.mark.parametrize("n_rows", [4, 11])
def test_gradient_of_the_coding_rate_equals_its_closed_form(n_rows, seed):
    rows = unit_rows(n_rows, 6, seed=seed).requires_grad_()
    coding_rate(rows, 0.2).backward()
    scale = 6 / (n_rows * 0.2)
    z = rows.detach()
    inverse = torch.linalg.inv(torch.eye(6, dtype=z.dtype) + scale * z.T @ z)
    assert_close(rows.grad, scale * z @ inverse, atol=1e-12)  # entries may be near 0


def test_single_precision_rate_of_the_training_size_is_close_to_double(seed):
    rows = unit_rows(100, 1024, seed=seed)
    assert_close(coding_rate(rows.float(), 0.2), coding_rate(rows, 0.2))


# Orthogonal rows where they fit, a tight frame where they do not.
@pytest.mark.parametrize(("n_rows", "n_features"), [(4, 8), (8, 8), (16, 8)])
def test_rate_bounds_are_reached_by_equal_and_by_spread_rows(n_rows, n_features):
    collapsed, spread = rate_bounds(n_rows, n_features, 0.2)
    equal = torch.zeros(n_rows, n_features, dtype=torch.float64)
    equal[:, 0] = 1
    index = torch.arange(n_rows) % n_features
    frame = torch.eye(n_features, dtype=torch.float64)[index]
    assert coding_rate(equal, 0.2).item() == pytest.approx(collapsed, rel=1e-9)
    assert coding_rate(frame, 0.2).item() == pytest.approx(spread, rel=1e-9)


def test_no_unit_rows_exceed_the_rate_bounds(seed):
    for n_rows in (3, 8, 30):
        collapsed, spread = rate_bounds(n_rows, 8, 0.2)
        rate = coding_rate(unit_rows(n_rows, 8, seed=seed), 0.2).item()
        assert collapsed < rate < spread


def test_patch_loss_equals_the_terms_written_out_with_loops(seed):
    projections = unit_rows(3, 4, 5, seed=seed)  # patches, images, dimensions
    loss = patch_loss(projections, invariance=7.0, distortion=0.2)

    gaps = 0
    for image in range(4):
        mean = sum(projections[patch, image] for patch in range(3)) / 3
        for patch in range(3):
            gaps += 1 - projections[patch, image] @ mean / mean.norm()
    discrepancy = gaps / 12
    rate = sum(literal_rate(projections[patch], 0.2) for patch in range(3)) / 3

    assert_close(loss.discrepancy, discrepancy)
    assert_close(loss.rate, rate)
    assert_close(loss.total, 7 * discrepancy - rate)


def test_patches_that_agree_have_no_discrepancy(seed):
    projections = unit_rows(1, 4, 5, seed=seed).expand(3, 4, 5)
    loss = patch_loss(projections, invariance=1.0, distortion=0.2)
    assert abs(loss.discrepancy.item()) < 1e-12


def test_patch_loss_gradient_equals_finite_differences(seed):
    projections = unit_rows(2, 3, 4, seed=seed).requires_grad_()

    def total(z):
        return patch_loss(z, invariance=3.0, distortion=0.2).total

    assert torch.autograd.gradcheck(total, projections)


def test_rows_that_are_not_finite_give_no_finite_rate():
    rows = torch.full((3, 4), math.nan)
    assert not math.isfinite(coding_rate(rows, 0.2).item())
