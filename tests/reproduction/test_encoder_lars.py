from __future__ import annotations

import copy

import pytest
import torch
from compare import assert_close

from reproduction.encoder.lars import Lars


def literal_step(weight, gradient, velocity, *, ceiling, momentum, decay, trust):
    """One step of one tensor with plain numbers; returns weight and velocity."""
    if weight.ndim > 1:
        size = weight.square().sum().sqrt().item()
        slope = gradient.square().sum().sqrt().item()
        rate = ceiling
        if size > 0 and slope > 0:
            rate = min(trust * size / (slope + decay * size), ceiling)
        move = rate * (gradient + decay * weight)
    else:
        move = ceiling * gradient
    velocity = momentum * velocity + move
    return weight - (move + momentum * velocity), velocity


def tensors(seed):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(3, 4), (4,), (2, 3, 3, 3), (1,), (5, 2)]
    return [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]


# A ceiling that binds for every tensor, for some, and for none.
@pytest.mark.parametrize("ceiling", [1e-4, 0.004, 10.0])
def test_steps_equal_a_literal_reference(ceiling, seed):
    weights = [w.requires_grad_() for w in tensors(seed)]
    optimizer = Lars(weights, ceiling, weight_decay=0.01, trust=0.005)
    expected = [w.detach().clone() for w in weights]
    velocities = [torch.zeros_like(w) for w in expected]
    for step in range(4):
        optimizer.learning_rate = ceiling / (1 + step)
        for i, gradient in enumerate(tensors(1000 + seed + step)):
            weights[i].grad = gradient.clone()
            expected[i], velocities[i] = literal_step(
                expected[i],
                gradient,
                velocities[i],
                ceiling=ceiling / (1 + step),
                momentum=0.9,
                decay=0.01,
                trust=0.005,
            )
        optimizer.step()
    for weight, value in zip(weights, expected, strict=True):
        assert_close(weight.detach(), value, atol=1e-12)  # entries may be near 0


def test_without_trust_and_decay_vectors_move_as_torch_sgd_with_nesterov(seed):
    vector = torch.randn(6, generator=torch.Generator().manual_seed(seed))
    ours, theirs = vector.clone().requires_grad_(), vector.clone().requires_grad_()
    lars = Lars([ours], 0.1)
    sgd = torch.optim.SGD([theirs], lr=0.1, momentum=0.9, nesterov=True)
    for _ in range(5):
        for weights, optimizer in ((ours, lars), (theirs, sgd)):
            optimizer.zero_grad()
            weights.square().sum().backward()
            optimizer.step()
    assert_close(ours.detach(), theirs.detach(), atol=1e-7)


def test_first_step_of_a_matrix_is_a_fixed_part_of_its_norm():
    weight = torch.full((2, 2), 3.0, dtype=torch.float64, requires_grad=True)  # norm 6
    weight.grad = torch.tensor([[0.0, 5000.0], [0.0, 0.0]], dtype=torch.float64)
    Lars([weight], 1.0, momentum=0.0, weight_decay=0.0, trust=0.005).step()
    # |step| = trust * |w| = 0.03, whatever the size of the gradient.
    expected = torch.tensor([[3.0, 2.97], [3.0, 3.0]], dtype=torch.float64)
    assert_close(weight.detach(), expected)


def test_an_all_zero_matrix_moves_at_the_learning_rate():
    weight = torch.zeros(2, 2, requires_grad=True)
    weight.grad = torch.ones(2, 2)
    Lars([weight], 0.5, momentum=0.0).step()
    assert_close(weight.detach(), torch.full((2, 2), -0.5))


def test_parameters_without_gradient_stay_where_they_are():
    moved, kept = (
        torch.ones(2, 2, requires_grad=True),
        torch.ones(2, requires_grad=True),
    )
    moved.grad = torch.ones(2, 2)
    Lars([moved, kept], 0.1).step()
    assert torch.equal(kept.detach(), torch.ones(2))
    assert not torch.equal(moved.detach(), torch.ones(2, 2))


def test_velocities_carry_the_whole_state(seed):
    first = [w.requires_grad_() for w in tensors(seed)]
    optimizer = Lars(first, 0.1)
    for i, gradient in enumerate(tensors(seed + 1)):
        first[i].grad = gradient.clone()
    optimizer.step()

    second = [w.detach().clone().requires_grad_() for w in first]
    resumed = Lars(second, 0.1)
    for target, source in zip(
        resumed.velocities, copy.deepcopy(optimizer.velocities), strict=True
    ):
        target.copy_(source)
    for weights, used in ((first, optimizer), (second, resumed)):
        for i, gradient in enumerate(tensors(seed + 2)):
            weights[i].grad = gradient.clone()
        used.step()
    for left, right in zip(first, second, strict=True):
        assert torch.equal(left, right)
