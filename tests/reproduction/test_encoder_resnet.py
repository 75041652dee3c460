from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from compare import assert_close

from reproduction.encoder.resnet import (
    LAYERS,
    Architecture,
    ResidualBlock,
    build_network,
)

SMALL = Architecture(width=4, n_blocks=(1, 2), n_hidden=10, n_projection=6)


def small_network(seed):
    return build_network(SMALL, torch.Generator().manual_seed(seed))


def random_images(n, seed):
    return torch.randn(n, 3, 16, 16, generator=torch.Generator().manual_seed(seed))


def test_default_backbone_has_the_parameters_of_resnet_18_without_classifier():
    # He et al.'s ResNet-18 has 11,689,512 parameters: 513,000 in the classifier and
    # 64 * 3 * (49 - 9) more in its 7 x 7 stem than in a 3 x 3 one.
    with torch.device("meta"):
        from reproduction.encoder.resnet import EncoderNetwork

        network = EncoderNetwork(Architecture())
    n_parameters = sum(p.numel() for p in network.backbone.parameters())
    assert n_parameters == 11_689_512 - 513_000 - 64 * 3 * (49 - 9)


def test_layers_have_the_sizes_that_the_architecture_states(seed):
    found = small_network(seed).layers(random_images(3, seed), LAYERS)
    for name in LAYERS:
        assert found[name].shape == (3, SMALL.n_features(name))
    assert [SMALL.n_features(name) for name in LAYERS] == [8, 10, 6]


def test_one_layer_alone_equals_the_same_layer_among_all(seed):
    network, images = small_network(seed).eval(), random_images(3, seed)
    together = network.layers(images, LAYERS)
    for name in LAYERS:
        assert torch.equal(network.represent(images, name), together[name])


def test_projections_have_unit_norm(seed):
    norms = small_network(seed)(random_images(5, seed)).norm(dim=1)
    assert_close(norms, torch.ones(5))


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


@pytest.mark.gpu
def test_bfloat16_changes_features_by_no_more_than_its_precision(seed):
    network = small_network(seed).eval().cuda()
    images = random_images(8, seed).cuda()
    with torch.no_grad():
        exact = network(images)
        with torch.autocast("cuda", torch.bfloat16):
            rounded = network(images)
    assert rounded.dtype == torch.float32
    assert (F.cosine_similarity(exact, rounded) > 0.999).all()


def test_images_are_judged_one_by_one_outside_training(seed):
    network, images = small_network(seed).eval(), random_images(4, seed)
    with torch.no_grad():
        together = network(images)
        alone = torch.cat([network(image.unsqueeze(0)) for image in images])
    assert_close(alone, together, atol=1e-6)
