from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from compare import assert_close

from reproduction.encoder.lars import Lars
from reproduction.encoder.network import (
    Architecture,
    EncoderNetwork,
    ResidualBlock,
    build_network,
    coding_rate,
    patch_loss,
    rate_bounds,
)

SMALL = Architecture(width=4, n_blocks=(1, 2), n_hidden=10, n_projection=6)


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


def test_first_step_of_a_matrix_is_a_fixed_part_of_its_norm():
    weight = torch.full((2, 2), 3.0, dtype=torch.float64, requires_grad=True)  # norm 6
    weight.grad = torch.tensor([[0.0, 5000.0], [0.0, 0.0]], dtype=torch.float64)
    Lars([weight], 1.0, momentum=0.0, weight_decay=0.0, trust=0.005).step()
    # |step| = trust * |w| = 0.03, whatever the size of the gradient.
    expected = torch.tensor([[3.0, 2.97], [3.0, 3.0]], dtype=torch.float64)
    assert_close(weight.detach(), expected)


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


@pytest.mark.parametrize("n_rows", [4, 11])
def test_gradient_of_the_coding_rate_equals_its_closed_form(n_rows, seed):
    rows = unit_rows(n_rows, 6, seed=seed).requires_grad_()
    coding_rate(rows, 0.2).backward()
    scale = 6 / (n_rows * 0.2)
    z = rows.detach()
    inverse = torch.linalg.inv(torch.eye(6, dtype=z.dtype) + scale * z.T @ z)
    assert_close(rows.grad, scale * z @ inverse, atol=1e-12)  # entries may be near 0


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


def small_network(seed):
    return build_network(SMALL, torch.Generator().manual_seed(seed))


def random_images(n, seed):
    return torch.randn(n, 3, 16, 16, generator=torch.Generator().manual_seed(seed))


def test_default_backbone_has_the_parameters_of_resnet_18_without_classifier():
    # He et al.'s ResNet-18 has 11,689,512 parameters: 513,000 in the classifier and
    # 64 * 3 * (49 - 9) more in its 7 x 7 stem than in a 3 x 3 one.
    with torch.device("meta"):
        network = EncoderNetwork(Architecture())
    n_parameters = sum(p.numel() for p in network.backbone.parameters())
    assert n_parameters == 11_689_512 - 513_000 - 64 * 3 * (49 - 9)


@pytest.mark.parametrize("stride", [1, 2])
def test_residual_block_equals_its_formula(stride, seed):
    generator = torch.Generator().manual_seed(seed)
    block = ResidualBlock(3, 3 * stride, stride=stride).eval()
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    images = random_images(2, seed)

    weights = dict(block.state_dict())

    def normalised(x, name):
        return F.batch_norm(
            x,
            weights[f"{name}.running_mean"],
            weights[f"{name}.running_var"],
            weights[f"{name}.weight"],
            weights[f"{name}.bias"],
        )

    inner = F.conv2d(images, weights["body.0.weight"], stride=stride, padding=1)
    inner = F.conv2d(
        F.relu(normalised(inner, "body.1")), weights["body.3.weight"], padding=1
    )
    outer = images
    if stride == 2:
        outer = F.conv2d(images, weights["shortcut.0.weight"], stride=2)
        outer = normalised(outer, "shortcut.1")
    expected = F.relu(normalised(inner, "body.4") + outer)
    with torch.no_grad():
        assert_close(block(images), expected, atol=1e-4)  # entries cancel to near 0


def test_weights_are_decided_by_the_generator_and_leave_the_global_one_alone(seed):
    before = torch.get_rng_state()
    first, again, other = (
        small_network(seed),
        small_network(seed),
        small_network(seed + 1),
    )
    assert torch.equal(torch.get_rng_state(), before)
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])
    assert not torch.equal(first.projector[0].weight, other.projector[0].weight)


def test_initial_weights_have_the_usual_spread(seed):
    network = build_network(
        Architecture(width=16, n_blocks=(1, 1), n_hidden=256, n_projection=64),
        torch.Generator().manual_seed(seed),
    )
    convolution = network.backbone[3].body[0].weight
    # Normal with variance 2 / (9 pixels * channels out).
    expected = (2 / (9 * 16)) ** 0.5
    assert convolution.std().item() == pytest.approx(expected, rel=0.1)
    linear = network.projector[0].weight
    assert 0.99 / 16 < linear.abs().max().item() <= 1 / 16  # 1 / sqrt(256)
    assert torch.equal(network.hidden[1].running_var, torch.ones(256))
    assert torch.equal(network.hidden[1].weight, torch.ones(256))
