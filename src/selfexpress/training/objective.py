"""The self-expression objective of a batch and its gradient, computed in two ways.

For a batch of B rows x_j the objective is the mean over j of

    gamma/2 |x_j - sum_i c_ij x_i|^2 + sum_i r(c_ij),   i != j,

with the elastic net r. Shapes: B queries, K keys of a block, D features,
P embedding dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from selfexpress import distributed
from selfexpress.config import NetworkConfig, TrainConfig
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.ops.self_expression import elastic_net
from selfexpress.rows.sources import RowBlock, RowSource


@dataclass(frozen=True)
class Objective:
    """The two parts of a batch's objective, as means over its rows.

    The squared residual enters it times gamma / 2, the elastic net as it is.
    """

    reconstruction: Tensor
    penalty: Tensor

    def total(self, gamma: float) -> Tensor:
        """Return the objective."""
        return gamma / 2 * self.reconstruction + self.penalty


GradientStep = Callable[
    [SelfExpressiveNetwork, RowBlock, RowSource, TrainConfig], Objective
]


def naive_gradient(
    network: SelfExpressiveNetwork,
    batch: RowBlock,
    source: RowSource,
    config: TrainConfig,
) -> Objective:
    """Add the batch objective's gradient to ``network``; return the objective.

    The paper's Algorithm 1: one graph over all keys, so memory grows with the source.
    """
    n_queries = len(batch.rows)
    (block,) = source.blocks(len(source))
    queries = network.query_tower(batch.rows)  # (B, P)
    coefficients = network.block_coefficients(queries, batch, block)  # (B, N)
    residual = batch.rows - coefficients @ block.rows  # (B, D)
    objective = Objective(
        residual.square().sum() / n_queries,
        elastic_net(coefficients, config.l1_ratio) / n_queries,
    )
    objective.total(config.gamma).backward()
    return Objective(objective.reconstruction.detach(), objective.penalty.detach())


def two_pass_gradient(
    network: SelfExpressiveNetwork,
    batch: RowBlock,
    source: RowSource,
    config: TrainConfig,
) -> Objective:
    """Add the batch objective's gradient to ``network``; return the objective.

    The paper's Algorithm 2: memory does not grow with ``len(source)``, but for one
    byte of bookkeeping a row. Pass 1 sums the residual over the key blocks without a
    graph and notes the active keys, those with a non-zero coefficient for some query.
    Pass 2 builds one block's graph at a time and back-propagates it against that
    fixed residual. A key that is not active has neither value nor gradient, so that
    pass 2 leaves it out and is still exact.

    Where many processes hold a part of the source each, both passes run over the own
    part and sums over all parts follow: of the reconstruction after pass 1, of the
    gradient after pass 2. Every process then has the gradient of the whole.
    """
    with distributed.summed_gradients(network.parameters()):
        objective = _own_two_passes(network, batch, source, config)
    return Objective(objective.reconstruction, distributed.add_up(objective.penalty))


def _own_two_passes(
    network: SelfExpressiveNetwork,
    batch: RowBlock,
    source: RowSource,
    config: TrainConfig,
) -> Objective:
    """Add the gradient of the blocks of this process; return their penalty."""
    n_queries = len(batch.rows)
    queries = network.query_tower(batch.rows)  # (B, P)

    reconstruction = torch.zeros_like(batch.rows)  # (B, D)
    active: list[Tensor] = []
    with torch.no_grad():
        for block in source.blocks(config.block_size):
            coefficients = network.block_coefficients(queries, batch, block)  # (B, K)
            reconstruction += coefficients @ block.rows
            active.append((coefficients != 0).any(dim=0))
        residual = batch.rows - distributed.add_up(reconstruction)

    # Blocks see the queries as a leaf: the tower's own graph must survive every
    # block's backward and is walked once, after the last.
    query_leaf = queries.detach().requires_grad_()
    penalty = residual.new_zeros(())
    for block in active_blocks(source, active, config.block_size):
        coefficients = network.block_coefficients(query_leaf, batch, block)
        fit = -config.gamma * (residual * (coefficients @ block.rows)).sum()
        block_penalty = elastic_net(coefficients, config.l1_ratio)
        ((fit + block_penalty) / n_queries).backward()
        penalty += block_penalty.detach()
    if query_leaf.grad is not None:
        queries.backward(query_leaf.grad)

    return Objective(residual.square().sum() / n_queries, penalty / n_queries)


GRADIENT_STEPS: dict[str, GradientStep] = {
    "naive": naive_gradient,
    "two_pass": two_pass_gradient,
}


def active_blocks(
    source: RowSource, active: list[Tensor], block_size: int
) -> Iterator[RowBlock]:
    """Yield the active rows of every block that has any."""
    for block, is_active in zip(source.blocks(block_size), active, strict=True):
        if is_active.any():
            yield RowBlock(block.rows[is_active], block.index[is_active])


def naive_step_bytes(
    n_samples: int, n_features: int, *, network: NetworkConfig, train: TrainConfig
) -> int:
    """Return about how many bytes the graph of a naive step holds at its peak.

    Every layer keeps its input and output (ReLU, tanh) for each key, and a gradient
    of one layer's width passes through; the coefficients exist in about six stages
    between the products and the penalty.
    """
    widths = (*network.hidden_sizes, network.n_embedding)
    keys = n_samples * (n_features + 2 * sum(widths) + 2 * max(widths))
    coefficients = 6 * min(train.batch_size, n_samples) * n_samples
    return 4 * (keys + coefficients)
