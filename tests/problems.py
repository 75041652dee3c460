"""Small problems that several test files solve."""

from __future__ import annotations

import torch

from selfexpress.config import NetworkConfig
from selfexpress.data.sources import ArraySource, RowBlock
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.ops.self_expression import unit_rows


def unit_data(n_samples: int, n_features: int, *, seed: int) -> torch.Tensor:
    """Random unit rows in float64."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(n_samples, n_features, generator=generator, dtype=torch.float64)
    return unit_rows(rows)


def small_network(
    n_features: int, *, seed: int, threshold: float = 0.3
) -> SelfExpressiveNetwork:
    """A network in float64 some of whose coefficients are zero."""
    generator = torch.Generator().manual_seed(seed)
    config = NetworkConfig(hidden_sizes=(9, 8), n_embedding=7)
    network = SelfExpressiveNetwork(n_features, config, generator=generator).double()
    with torch.no_grad():
        network.threshold.fill_(threshold)
    return network


def small_problem(*, seed: int, n_samples: int = 40, batch_size: int = 6):
    """Return network, batch and source of one training step in float64."""
    rows = unit_data(n_samples, 5, seed=seed)
    source = ArraySource(rows, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed + 1)
    index = torch.randperm(n_samples, generator=generator)[:batch_size]
    return small_network(5, seed=seed), RowBlock(rows[index], index), source
