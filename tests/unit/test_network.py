from __future__ import annotations

import math

import reference
import torch
from compare import assert_close
from problems import small_network, unit_data

from selfexpress.config import NetworkConfig
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.rows.sources import RowBlock


def test_coefficients_equal_the_formula_pair_by_pair(seed):
    network = small_network(5, seed=seed)
    rows = unit_data(6, 5, seed=seed)
    index = torch.arange(6)
    block = RowBlock(rows, index)
    actual = network.block_coefficients(network.query_tower(rows), block, block)
    expected = torch.stack(
        [
            torch.stack([reference.coefficient(network, x_i, x_j) for x_i in rows])
            for x_j in rows
        ]
    )
    expected.fill_diagonal_(0)
    assert_close(actual.detach(), expected.detach(), atol=1e-14)


def test_coefficients_are_below_one_in_size():
    network = small_network(5, seed=0, threshold=0.0)
    rows = 1e6 * unit_data(20, 5, seed=0)
    queries, keys = network.query_tower(rows), network.key_tower(rows)
    assert network.coefficients(queries, keys).abs().max() <= 1


def test_initial_weights_lie_in_their_bounds():
    config = NetworkConfig(hidden_sizes=(400, 300), n_embedding=200)
    generator = torch.Generator().manual_seed(0)
    network = SelfExpressiveNetwork(100, config, generator=generator)
    first, _, second, _, output, _ = network.query_tower
    # Kaiming: sqrt(6 / inputs); Xavier: sqrt(6 / (inputs + outputs)).
    bounds = [math.sqrt(6 / 100), math.sqrt(6 / 400), math.sqrt(6 / 500)]
    for layer, bound in zip([first, second, output], bounds, strict=True):
        assert 0.99 * bound < layer.weight.abs().max().item() <= bound
        assert not layer.bias.any()
    assert network.threshold.item() == 0
    assert network.scale == 1 / 200


def test_towers_start_differently_and_seeds_repeat(seed):
    def build():
        generator = torch.Generator().manual_seed(seed)
        return SelfExpressiveNetwork(4, NetworkConfig((8,), 8), generator=generator)

    first, second = build(), build()
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, second.state_dict()[name])
    assert not torch.equal(first.query_tower[0].weight, first.key_tower[0].weight)


def test_building_a_network_leaves_the_global_random_state_alone():
    before = torch.random.get_rng_state()
    generator = torch.Generator().manual_seed(3)
    SelfExpressiveNetwork(4, NetworkConfig((8,), 8), generator=generator)
    assert torch.equal(before, torch.random.get_rng_state())
