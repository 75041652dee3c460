"""The self-expressive network: two towers and a learnable soft threshold.

Shapes: B queries, K keys, D features, P embedding dimensions.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from selfexpress.config import NetworkConfig
from selfexpress.ops.self_expression import soft_threshold, without_self
from selfexpress.rows.sources import RowBlock


class SelfExpressiveNetwork(nn.Module):
    """Coefficients as a function of two rows: f(x_i, x_j) = T_b(u(x_j) . v(x_i)) / p.

    Parameters
    ----------
    n_features : int
    config : NetworkConfig
    generator : torch.Generator, optional
        Source of the initial weights.

    Attributes
    ----------
    query_tower : nn.Module
        u, for the row that is expressed.
    key_tower : nn.Module
        v, for the rows that express it.
    threshold : nn.Parameter
        b; starts at 0 and is unconstrained.
    scale : float
        1/p, because tanh bounds the inner product by p.
    """

    def __init__(
        self,
        n_features: int,
        config: NetworkConfig,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.n_features = n_features
        self.config = config
        self.query_tower = _tower(n_features, config, generator)
        self.key_tower = _tower(n_features, config, generator)
        self.threshold = nn.Parameter(torch.zeros(()))
        self.scale = 1 / config.n_embedding

    def coefficients(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return ``alpha T_b(u_j^T v_i)`` for queries u_j and keys v_i, (B, K)."""
        products = queries @ keys.T
        return self.scale * soft_threshold(products, self.threshold)

    def block_coefficients(
        self, queries: Tensor, batch: RowBlock, block: RowBlock
    ) -> Tensor:
        """Return the coefficients of a batch on a block of the same source, (B, K).

        No row expresses itself.
        """
        coefficients = self.coefficients(queries, self.key_tower(block.rows))
        return without_self(coefficients, batch.index, block.index)


def _tower(
    n_features: int, config: NetworkConfig, generator: torch.Generator | None
) -> nn.Sequential:
    """Return an MLP with ReLU between its layers and tanh at the end.

    Layers come uninitialised, so that the global random state stays untouched, and on
    the default device, which may be "meta" for sizes that nobody trusts.
    """
    device = torch.get_default_device()
    sizes = [n_features, *config.hidden_sizes]
    layers: list[nn.Module] = []
    for n_inputs, n_outputs in pairwise(sizes):
        hidden = skip_init(nn.Linear, n_inputs, n_outputs, device=device)
        nn.init.kaiming_uniform_(hidden.weight, generator=generator)
        layers += [hidden, nn.ReLU()]
    output = skip_init(nn.Linear, sizes[-1], config.n_embedding, device=device)
    nn.init.xavier_uniform_(output.weight, generator=generator)
    layers += [output, nn.Tanh()]
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)
