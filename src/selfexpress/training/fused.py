"""The gradients of ``objective.py`` written out by hand, for speed.

The same two algorithms as matrix products with one element-wise step between them.
Autograd is not involved: no cast of weights, no stored intermediates beyond each
layer's output, and nothing that keeps a whole step from being recorded as one graph.

Shapes: B queries, K keys of a block, D features, P embedding dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from selfexpress.config import TrainConfig
from selfexpress.data.sources import ArraySource, MappedSource, RowBlock, RowSource
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.ops.shrinkage import Shrinkage
from selfexpress.training.objective import Objective, active_blocks
from selfexpress.training.parameters import ALIGNMENT, FlatParameters


class FusedGradient:
    """Adds the gradient of a batch objective to flat parameters.

    Parameters
    ----------
    network : SelfExpressiveNetwork
    parameters : FlatParameters
        Of ``network``; products are computed in the type of its ``working`` copy.
    config : TrainConfig
    """

    def __init__(
        self,
        network: SelfExpressiveNetwork,
        parameters: FlatParameters,
        config: TrainConfig,
    ) -> None:
        self._config = config
        self._is_in_memory = False
        self._sum_dtype = parameters.values.dtype
        self._queries = _Tower(network.query_tower, parameters)
        self._keys = _Tower(network.key_tower, parameters)
        self._threshold = network.threshold
        self._threshold_gradient = parameters.padded(
            parameters.gradients, network.threshold
        )
        self._shrinkage = Shrinkage(network.scale, config.l1_ratio)
        self._side = _SideStream(network.threshold.device)

    def prepare(self, source: RowSource, *, in_memory: bool) -> RowSource:
        """Return a source of rows as the products want them: padded and converted."""
        dtype = self._keys.dtype
        n_missing = -source.n_features % ALIGNMENT
        prepared = MappedSource(
            source,
            lambda rows: functional.pad(rows, (0, n_missing)).to(dtype),
            source.n_features + n_missing,
        )
        self._is_in_memory = in_memory
        if not in_memory:
            return prepared
        blocks = prepared.blocks(self._config.block_size)
        rows = torch.cat([block.rows for block in blocks])
        return ArraySource(rows, dtype=dtype, device=rows.device)

    @torch.no_grad()
    def naive(self, batch: RowBlock, source: RowSource) -> Objective:
        """Add the gradient, all keys at once; see ``objective.naive_gradient``."""
        (block,) = source.blocks(len(source))
        with self._side:
            query_layers = self._queries.forward(batch.rows)
        key_layers = self._keys.forward(block.rows)
        self._side.join()
        queries, keys = query_layers[-1], key_layers[-1]

        coefficients, penalty = self._coefficients(queries, keys, batch, block)
        residual = torch.addmm(batch.rows, coefficients, block.rows, alpha=-1)  # (B, D)
        products_gradient = self._backward(coefficients, residual, block.rows)

        with self._side:
            self._queries.backward(query_layers, products_gradient @ keys)
        self._keys.backward(key_layers, products_gradient.T @ queries)
        self._side.join()
        return self._objective(residual, penalty)

    @torch.no_grad()
    def two_pass(self, batch: RowBlock, source: RowSource) -> Objective:
        """Add the gradient, block by block; see ``objective.two_pass_gradient``."""
        query_layers = self._queries.forward(batch.rows)
        queries = query_layers[-1]
        residual = batch.rows.to(self._sum_dtype, copy=True)
        active = []
        for block in source.blocks(self._config.block_size):
            keys = self._keys.forward(block.rows)[-1]
            coefficients, _ = self._coefficients(queries, keys, batch, block)
            residual -= coefficients @ block.rows
            active.append((coefficients != 0).any(dim=0))
            del keys, coefficients

        fixed = residual.to(queries.dtype)
        queries_gradient = torch.zeros_like(queries, dtype=self._sum_dtype)
        penalty = residual.new_zeros(())
        for block in self._active_blocks(source, active):
            key_layers = self._keys.forward(block.rows)
            coefficients, block_penalty = self._coefficients(
                queries, key_layers[-1], batch, block
            )
            products_gradient = self._backward(coefficients, fixed, block.rows)
            queries_gradient += products_gradient @ key_layers[-1]
            self._keys.backward(key_layers, products_gradient.T @ queries)
            penalty += block_penalty
            del key_layers, coefficients, products_gradient
        self._queries.backward(query_layers, queries_gradient.to(queries.dtype))
        return self._objective(residual, penalty)

    def _coefficients(
        self, queries: Tensor, keys: Tensor, batch: RowBlock, block: RowBlock
    ) -> tuple[Tensor, Tensor]:
        """Return the coefficients, (B, K), and the sum of their penalty."""
        return self._shrinkage.forward(
            queries @ keys.T,
            self._threshold.detach(),
            query_index=batch.index,
            key_index=block.index,
        )

    def _backward(self, coefficients: Tensor, residual: Tensor, rows: Tensor) -> Tensor:
        """Return the gradient of the inner products, (B, K); add the threshold's."""
        weight = 1 / len(residual)
        upstream = (-self._config.gamma * weight * residual) @ rows.T
        gradient, threshold_gradient = self._shrinkage.backward(
            coefficients, upstream, weight=weight
        )
        self._threshold_gradient += threshold_gradient
        return gradient

    def _active_blocks(
        self, source: RowSource, active: list[Tensor]
    ) -> Iterator[RowBlock]:
        """Yield the active rows; full blocks of them where any row is at hand."""
        block_size = self._config.block_size
        if self._is_in_memory:
            for part in torch.cat(active).nonzero().squeeze(1).split(block_size):
                yield RowBlock(source.take(part), part)
        else:
            yield from active_blocks(source, active, block_size)

    def _objective(self, residual: Tensor, penalty: Tensor) -> Objective:
        reconstruction = residual.to(self._sum_dtype).square().sum()
        return Objective(reconstruction / len(residual), penalty / len(residual))


class _Tower:
    """One tower's layers as weights in working precision and gradient buffers."""

    def __init__(self, tower: nn.Sequential, parameters: FlatParameters) -> None:
        self.dtype = parameters.working.dtype
        layers = [layer for layer in tower if isinstance(layer, nn.Linear)]
        self._weights = [
            _weight(parameters, parameters.working, x, is_first=x is layers[0])
            for x in layers
        ]
        self._biases = [parameters.padded(parameters.working, x.bias) for x in layers]
        self._weight_gradients = [
            _weight(parameters, parameters.gradients, x, is_first=x is layers[0])
            for x in layers
        ]
        self._bias_gradients = [
            parameters.padded(parameters.gradients, x.bias) for x in layers
        ]

    def forward(self, rows: Tensor) -> list[Tensor]:
        """Return the rows and the output of every layer."""
        outputs = [rows]
        for weight, bias in zip(self._weights[:-1], self._biases[:-1], strict=True):
            outputs.append(torch._addmm_activation(bias, outputs[-1], weight.T))
        outputs.append(torch.addmm(self._biases[-1], outputs[-1], self._weights[-1].T))
        outputs[-1].tanh_()
        return outputs

    def backward(self, outputs: list[Tensor], gradient: Tensor) -> None:
        """Add the gradients of weights and biases, given that of the last output."""
        gradient = torch.ops.aten.tanh_backward(gradient, outputs[-1])
        for layer in reversed(range(len(self._weights))):
            inputs = outputs[layer]
            _add_product(self._weight_gradients[layer], gradient.T, inputs)
            self._bias_gradients[layer].add_(gradient.sum(dim=0))
            if layer:
                gradient = gradient @ self._weights[layer]
                gradient = torch.ops.aten.threshold_backward(gradient, inputs, 0)


def _weight(
    parameters: FlatParameters, buffer: Tensor, layer: nn.Linear, *, is_first: bool
) -> Tensor:
    """Return a layer's weight in a buffer; rows come padded to the first layer only."""
    weight = cast(nn.Parameter, layer.weight)
    padded = parameters.padded(buffer, weight)
    return padded if is_first else padded[:, : layer.in_features]


class _SideStream:
    """Runs what is inside ``with`` beside the main stream of a GPU, until ``join``."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def __enter__(self) -> None:
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream())
            self._context = torch.cuda.stream(self._stream)
            self._context.__enter__()

    def __exit__(self, *error: object) -> None:
        if self._stream is not None:
            self._context.__exit__(*error)

    def join(self) -> None:
        """Let the main stream wait."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add a matrix product to a float32 total."""
    if left.dtype == total.dtype:
        torch.addmm(total, left, right, out=total)
    else:
        torch.addmm(total, left, right, out_dtype=total.dtype, out=total)
