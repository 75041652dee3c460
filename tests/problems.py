"""Small problems that several test files solve."""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse

from selfexpress.config import NetworkConfig
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.ops.self_expression import unit_rows
from selfexpress.rows.sources import ArraySource, RowBlock


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


def blocks(sizes, *, inside, outside, seed=0):
    """Groups whose members are all joined; weights inside by group."""
    truth = np.repeat(np.arange(len(sizes)), sizes)
    rng = np.random.default_rng(seed)
    weights = np.where(
        truth[:, None] == truth, np.take(inside, truth)[:, None], outside
    ) * rng.uniform(0.9, 1.1, (len(truth),) * 2)
    weights = np.triu(weights, 1)
    return sparse.csr_array(weights + weights.T), truth


def uneven_groups(seed: int):
    """Three large groups and two small ones, to be made four.

    Two of the large ones are joined more closely than the small ones are.
    """
    sizes = [60, 60, 60, 10, 10]
    affinity, truth = blocks(sizes, inside=[1.0] * 5, outside=0.005, seed=seed)
    dense = np.triu(affinity.toarray(), 1)
    rng = np.random.default_rng(seed)
    dense[np.ix_(truth == 0, truth == 1)] = 0.3 * rng.uniform(0.9, 1.1, (60, 60))
    dense[np.ix_(truth == 3, truth == 4)] = 0.15
    return sparse.csr_array(dense + dense.T), truth


def trainable(seed=0, *, n_samples=30):
    """Return a network that coefficients pass, and rows to train it on, in float64."""
    source = ArraySource(unit_data(n_samples, 5, seed=seed), dtype=torch.float64)
    return small_network(5, seed=seed, threshold=0.0), source
