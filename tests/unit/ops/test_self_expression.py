from __future__ import annotations

import pytest
import torch

from selfexpress.ops.self_expression import (
    elastic_net,
    soft_threshold,
    unit_rows,
    without_self,
)


def test_soft_threshold_by_hand():
    values = torch.tensor([-3.0, -1.0, 0.0, 0.5, 2.0])
    expected = torch.tensor([-2.0, 0.0, 0.0, 0.0, 1.0])
    assert torch.equal(soft_threshold(values, 1.0), expected)


def test_a_negative_threshold_pushes_values_away_from_zero():
    values = torch.tensor([-1.0, 0.0, 2.0])
    expected = torch.tensor([-1.5, 0.0, 2.5])
    assert torch.equal(soft_threshold(values, -0.5), expected)


def test_elastic_net_by_hand():
    coefficients = torch.tensor([[1.0, -2.0], [0.0, 3.0]])
    # l1 norm 6, squares 14: 0.9 of the one and 0.05 of the other.
    assert elastic_net(coefficients, 0.9).item() == pytest.approx(6.1)


def test_elastic_net_gradient_is_zero_at_zero():
    coefficients = torch.tensor([0.0, 2.0], requires_grad=True)
    elastic_net(coefficients, 0.9).backward()
    torch.testing.assert_close(coefficients.grad, torch.tensor([0.0, 0.9 + 0.1 * 2]))


def test_without_self_clears_equal_positions_only():
    cleared = without_self(torch.ones(2, 3), torch.tensor([5, 7]), torch.arange(5, 8))
    assert cleared.tolist() == [[0, 1, 1], [1, 1, 0]]


def test_unit_rows_by_hand():
    rows = unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    torch.testing.assert_close(rows, torch.tensor([[0.6, 0.8], [0.0, 0.0]]))


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1.0, 1e30])
def test_unit_rows_of_any_scale_have_norm_one(scale, seed):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(5, 7, generator=generator)
    torch.testing.assert_close(unit_rows(rows * scale), unit_rows(rows))
