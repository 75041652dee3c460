"""The gradients of ``objective.py`` written out by hand, for speed.

The same two algorithms as matrix products with one element-wise step between them.
Autograd is not involved: no cast of weights, no stored intermediates beyond each
layer's output, and nothing that keeps a whole step from being recorded as one graph.
For one process; many use ``objective.two_pass_gradient``.

Shapes: B queries, K keys of a block, D features, P embedding dimensions.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from itertools import chain, islice
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from selfexpress.config import TrainConfig
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.ops.devices import SideStream
from selfexpress.ops.elementwise import N_PARTS, Shrinkage, activation_backward
from selfexpress.rows.sources import ArraySource, MappedSource, RowBlock, RowSource
from selfexpress.training.objective import Objective, active_blocks
from selfexpress.training.optimizers import ALIGNMENT, FlatParameters

# Rows of a block: matrix units work on tiles of this size.
_BLOCK_MULTIPLE = 256

# Two passes over more rows than this, eight blocks of the default size, take so long
# that launching kernels is nothing, and leaving out keys that are not active gains
# more. Every block is in the recording.
_MAX_ROWS_RECORDED = 131_072
_MAX_BLOCKS_RECORDED = 64

# Last blocks of pass 1 that a GPU keeps for pass 2; elsewhere it is one.
_BLOCKS_KEPT_ON_GPU = 6


class _Expressed(NamedTuple):
    """A block of keys and how it expresses the batch; the penalty is in parts."""

    block: RowBlock
    layers: list[Tensor]
    coefficients: Tensor
    penalty: Tensor


class FusedGradient:
    """Writes the gradient of a batch objective into the flat parameters of a network.

    Products are computed in the type of their ``working`` copy. Batches are taken from
    ``source``: the rows of the one given as the products want them, padded and
    converted, and with ``in_memory`` held as one more copy.
    """

    def __init__(
        self,
        network: SelfExpressiveNetwork,
        parameters: FlatParameters,
        config: TrainConfig,
        source: RowSource,
        *,
        in_memory: bool,
    ) -> None:
        self._config = config
        self._parameters = parameters
        self._queries = _Tower(network.query_tower, parameters)
        self._keys = _Tower(network.key_tower, parameters)
        self._threshold = network.threshold
        self._threshold_gradient = parameters.padded(
            parameters.gradients, network.threshold
        )
        self._shrinkage = Shrinkage(network.scale, config.l1_ratio)
        self._side = SideStream(network.threshold.device, is_urgent=True)
        self._notes = SideStream(network.threshold.device)
        self._sum_dtype = parameters.values.dtype
        is_cuda = network.threshold.is_cuda
        self._n_kept = _BLOCKS_KEPT_ON_GPU if is_cuda else 1
        self._is_in_memory = in_memory
        self.source = _prepared(source, self._keys.dtype, config, in_memory=in_memory)
        self._block_size = _even_block_size(config, len(source))
        self.is_replayable = (
            is_cuda and in_memory and is_worth_recording(config, len(source))
        )

    @torch.no_grad()
    def gradient(self, batch: RowBlock) -> Objective:
        """Write the gradient by the algorithm that is set."""
        algorithms = {"naive": self._naive, "two_pass": self._two_pass}
        return algorithms[self._config.algorithm](batch)

    def _naive(self, batch: RowBlock) -> Objective:
        """Write the gradient, all keys at once; see ``objective.naive_gradient``."""
        (block,) = self.source.blocks(len(self.source))
        with self._side:
            query_layers = self._queries.forward(batch.rows)
        queries = query_layers[-1]
        found = self._express(queries, batch, block)
        residual = torch.addmm(  # (B, D)
            batch.rows, found.coefficients, block.rows, alpha=-1
        )
        gradient, threshold_parts = self._backward(
            found.coefficients, residual, block.rows
        )

        with self._notes:
            self._threshold_gradient.copy_(threshold_parts.sum())
            objective = self._objective(residual, found.penalty.sum())
        with self._side:
            self._queries.backward(query_layers, gradient @ found.layers[-1])
        self._keys.backward(found.layers, gradient.T @ queries)
        self._notes.join()
        self._side.join()
        return objective

    def _two_pass(self, batch: RowBlock) -> Objective:
        """Write the gradient, block by block; see ``objective.two_pass_gradient``.

        The last blocks of pass 1 are the last of pass 2 and not computed again.
        """
        self._parameters.gradients.zero_()
        with self._side:
            query_layers = self._queries.forward(batch.rows)
        queries = query_layers[-1]
        reconstruction = torch.zeros_like(batch.rows, dtype=self._sum_dtype)
        kept: deque[_Expressed] = deque(maxlen=self._n_kept)
        active = []
        for block in self.source.blocks(self._block_size):
            found = self._express(queries, batch, block)
            reconstruction += found.coefficients @ block.rows
            if not self.is_replayable:
                active.append((found.coefficients != 0).any(dim=0))
            kept.append(found)
        residual = batch.rows.to(self._sum_dtype) - reconstruction

        fixed = residual.to(queries.dtype)
        queries_gradient = torch.zeros_like(queries, dtype=self._sum_dtype)
        penalty = queries_gradient.new_zeros(())
        again = (
            self._express(queries, batch, block)
            for block in self._blocks_before(len(kept), active)
        )
        for found in chain(again, kept):
            penalty += found.penalty.sum()
            gradient, threshold_parts = self._backward(
                found.coefficients, fixed, found.block.rows
            )
            with self._side:
                self._threshold_gradient.add_(threshold_parts.sum())
                queries_gradient.add_(gradient @ found.layers[-1])
                if found is kept[-1]:
                    total = queries_gradient.to(queries.dtype)
                    self._queries.backward(query_layers, total, accumulate=True)
            self._keys.backward(found.layers, gradient.T @ queries, accumulate=True)
            self._side.join()
        return self._objective(residual, penalty)

    def _express(self, queries: Tensor, batch: RowBlock, block: RowBlock) -> _Expressed:
        """Express queries, which the side stream may still be at, by a block."""
        layers = self._keys.forward(block.rows)
        self._side.join()
        coefficients, penalty = self._shrinkage.forward(
            queries @ layers[-1].T,  # (B, K)
            self._threshold.detach(),
            query_index=batch.index,
            key_index=block.index,
        )
        return _Expressed(block, layers, coefficients, penalty)

    def _backward(
        self, coefficients: Tensor, residual: Tensor, rows: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the gradient of the products, (B, K), and parts of the threshold's."""
        weight = 1 / len(residual)
        return self._shrinkage.backward(
            coefficients,
            residual @ rows.T,
            weight=weight,
            factor=-self._config.gamma * weight,
        )

    def _blocks_before(self, n_kept: int, active: list[Tensor]) -> Iterator[RowBlock]:
        """Yield the rows that pass 2 needs again: active ones, where one can ask.

        A recorded step cannot depend on how many there are. Where any row is at hand,
        active ones are gathered into full blocks.
        """
        source = self.source
        if self.is_replayable:
            n_blocks = math.ceil(len(source) / self._block_size)
            yield from islice(source.blocks(self._block_size), n_blocks - n_kept)
            return
        wanted = [*active[:-n_kept], *map(torch.zeros_like, active[-n_kept:])]
        if self._is_in_memory:
            index = torch.cat(wanted).nonzero().squeeze(1)
            for part in index.split(self._block_size) if len(index) else ():
                yield RowBlock(source.take(part), part)
        else:
            yield from active_blocks(source, wanted, self._block_size)

    def _objective(self, residual: Tensor, penalty: Tensor) -> Objective:
        reconstruction = residual.to(self._sum_dtype).square().sum()
        return Objective(reconstruction / len(residual), penalty / len(residual))


def _prepared(
    source: RowSource, dtype: torch.dtype, config: TrainConfig, *, in_memory: bool
) -> RowSource:
    """Return a source of rows as the products want them: padded and converted."""
    n_missing = -source.n_features % ALIGNMENT
    prepared = MappedSource(
        source,
        lambda rows: functional.pad(rows, (0, n_missing)).to(dtype),
        source.n_features + n_missing,
    )
    if not in_memory:
        return prepared
    rows = torch.cat([block.rows for block in prepared.blocks(config.block_size)])
    return ArraySource(rows, dtype=dtype, device=rows.device)


def _even_block_size(config: TrainConfig, n_rows: int) -> int:
    """Return a size of like blocks: the last is used once and should not be small."""
    even = math.ceil(n_rows / _count_blocks(config, n_rows))
    multiple = min(_BLOCK_MULTIPLE, config.block_size)
    return min(-(-even // multiple) * multiple, config.block_size)


def is_worth_recording(config: TrainConfig, n_rows: int) -> bool:
    """Say whether launching kernels is much of the time of a step."""
    if config.algorithm == "naive":
        return True
    n_blocks = _count_blocks(config, n_rows)
    return n_rows <= _MAX_ROWS_RECORDED and n_blocks <= _MAX_BLOCKS_RECORDED


def _count_blocks(config: TrainConfig, n_rows: int) -> int:
    return max(1, math.ceil(n_rows / config.block_size))


class _Tower:
    """One tower's layers as weights in working precision and gradient buffers."""

    def __init__(self, tower: nn.Sequential, parameters: FlatParameters) -> None:
        self.dtype = parameters.working.dtype
        layers = [layer for layer in tower if isinstance(layer, nn.Linear)]
        widths = [None, *(layer.in_features for layer in layers[1:])]
        self._weights, self._weight_gradients = (
            # Rows come padded, so that the first layer's weight may keep its padding.
            [
                parameters.padded(buffer, cast(nn.Parameter, layer.weight))[:, :width]
                for layer, width in zip(layers, widths, strict=True)
            ]
            for buffer in (parameters.working, parameters.gradients)
        )
        self._biases = [parameters.padded(parameters.working, x.bias) for x in layers]
        # The biases' gradients lie side by side in memory, and are sums of parts.
        places = [parameters.place_in_vectors(x.bias) for x in layers]
        start, stop = places[0].start, places[-1].stop
        vectors = parameters.gradients[parameters.vectors_start :]
        self._bias_gradients = vectors[start:stop]
        self._all_bias_parts = parameters.values.new_zeros(N_PARTS, stop - start)
        self._ones = self._all_bias_parts.new_ones(N_PARTS)
        self._bias_parts = [
            self._all_bias_parts[:, place.start - start : place.stop - start]
            for place in places
        ]
        self._side = SideStream(parameters.values.device)

    def forward(self, rows: Tensor) -> list[Tensor]:
        """Return the rows and the output of every layer."""
        outputs = [rows]
        for weight, bias in zip(self._weights[:-1], self._biases[:-1], strict=True):
            outputs.append(torch._addmm_activation(bias, outputs[-1], weight.T))
        outputs.append(torch.addmm(self._biases[-1], outputs[-1], self._weights[-1].T))
        outputs[-1].tanh_()
        return outputs

    def backward(
        self, outputs: list[Tensor], gradient: Tensor, *, accumulate: bool = False
    ) -> None:
        """Write the gradients of weights and biases, given that of the last output.

        Each layer's weights are beside the way back to the layer before.
        """
        kind = "tanh"
        gradients = []
        for layer in reversed(range(len(self._weights))):
            gradient = activation_backward(
                gradient, outputs[layer + 1], self._bias_parts[layer], kind=kind
            )
            gradients.append(gradient)
            with self._side:
                total = self._weight_gradients[layer]
                if accumulate:
                    _add_product(total, gradient.T, outputs[layer])
                else:
                    torch.mm(gradient.T, outputs[layer], out=total)
            if layer:
                gradient = gradient @ self._weights[layer]
            kind = "relu"
        sums = self._ones @ self._all_bias_parts  # quicker than a sum of few rows
        if accumulate:
            self._bias_gradients.add_(sums)
        else:
            self._bias_gradients.copy_(sums)
        self._side.join()
        del gradients  # kept for the side stream until here


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add a matrix product to a float32 total."""
    if left.dtype == total.dtype:
        torch.addmm(total, left, right, out=total)
    else:
        torch.addmm(total, left, right, out_dtype=total.dtype, out=total)
