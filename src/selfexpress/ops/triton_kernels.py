"""GPU kernels of the element-wise steps; imports triton, so import it when needed.

Every function has a plain twin that tests compare it with: ``ops.adam`` and
``ops.shrinkage``.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from selfexpress.ops.adam import EPSILON, FIRST_DECAY, SECOND_DECAY

_BLOCK = 1024


@triton.jit
def _adam_kernel(
    values, gradients, first, second, working, rate, gradient_scale, n_steps, size,
    first_decay: tl.constexpr, second_decay: tl.constexpr, epsilon: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    scaled = tl.load(gradients + place, inside, 0.0) * tl.load(gradient_scale)
    step = tl.load(n_steps)
    first_bias = 1 - tl.exp2(step * tl.log2(first_decay))
    second_bias = 1 - tl.exp2(step * tl.log2(second_decay))
    mean = tl.load(first + place, inside, 0.0)
    mean += (1 - first_decay) * (scaled - mean)
    square = second_decay * tl.load(second + place, inside, 0.0)
    square += (1 - second_decay) * scaled * scaled
    move = tl.load(rate) / first_bias * mean / (tl.sqrt(square / second_bias) + epsilon)
    value = tl.load(values + place, inside, 0.0) - move
    tl.store(first + place, mean, inside)
    tl.store(second + place, square, inside)
    tl.store(values + place, value, inside)
    tl.store(working + place, value.to(working.dtype.element_ty), inside)


def fused_adam_update(
    values: Tensor,
    gradients: Tensor,
    first: Tensor,
    second: Tensor,
    rate: Tensor,
    gradient_scale: Tensor,
    n_steps: Tensor,
    working: Tensor,
) -> None:
    """See :func:`selfexpress.ops.adam.adam_update`."""
    size = len(values)
    _adam_kernel[(triton.cdiv(size, _BLOCK),)](
        values, gradients, first, second, working, rate, gradient_scale, n_steps, size,
        first_decay=FIRST_DECAY, second_decay=SECOND_DECAY, epsilon=EPSILON,
        BLOCK=_BLOCK,
    )  # fmt: skip


@triton.jit
def _shrink_kernel(
    products, threshold, query_index, key_index, penalties,
    n_keys, scale, l1_ratio, BLOCK: tl.constexpr,
):  # fmt: skip
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = part * BLOCK + tl.arange(0, BLOCK)
    inside = column < n_keys
    place = products + row * n_keys + column
    product = tl.load(place, inside, 0.0).to(tl.float32)
    size = tl.maximum(tl.abs(product) - tl.load(threshold), 0.0)
    size = tl.where(product == 0, 0.0, size)
    is_self = tl.load(key_index + column, inside, -1) == tl.load(query_index + row)
    size = scale * tl.where(is_self | ~inside, 0.0, size)
    coefficient = tl.where(product < 0, -size, size)
    tl.store(place, coefficient.to(products.dtype.element_ty), inside)
    penalty = l1_ratio * size + (1 - l1_ratio) / 2 * size * size
    tl.store(penalties + row * tl.num_programs(1) + part, tl.sum(penalty))


def fused_shrink(
    products: Tensor,
    threshold: Tensor,
    query_index: Tensor,
    key_index: Tensor,
    scale: float,
    l1_ratio: float,
) -> tuple[Tensor, Tensor]:
    """See :meth:`selfexpress.ops.shrinkage.Shrinkage.forward`; works in place."""
    n_queries, n_keys = products.shape
    n_parts = triton.cdiv(n_keys, _BLOCK)
    penalties = torch.empty(n_queries, n_parts, device=products.device)
    _shrink_kernel[(n_queries, n_parts)](
        products, threshold, query_index, key_index, penalties,
        n_keys, scale, l1_ratio, BLOCK=_BLOCK,
    )  # fmt: skip
    return products, penalties.sum()


@triton.jit
def _shrink_backward_kernel(
    coefficients, upstream, threshold_parts, n_keys, scale, l1_ratio, weight,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = part * BLOCK + tl.arange(0, BLOCK)
    inside = column < n_keys
    place = row * n_keys + column
    coefficient = tl.load(coefficients + place, inside, 0.0).to(tl.float32)
    sign = tl.where(coefficient > 0, 1.0, tl.where(coefficient < 0, -1.0, 0.0))
    slope = l1_ratio * sign + (1 - l1_ratio) * coefficient
    rest = tl.load(upstream + place, inside, 0.0).to(tl.float32)
    gradient = tl.where(coefficient != 0, scale * (rest + weight * slope), 0.0)
    tl.store(upstream + place, gradient.to(upstream.dtype.element_ty), inside)
    tl.store(threshold_parts + row * tl.num_programs(1) + part, tl.sum(gradient * sign))


def fused_shrink_backward(
    coefficients: Tensor,
    upstream: Tensor,
    scale: float,
    l1_ratio: float,
    weight: float,
) -> tuple[Tensor, Tensor]:
    """See :meth:`selfexpress.ops.shrinkage.Shrinkage.backward`; works in place."""
    n_queries, n_keys = coefficients.shape
    n_parts = triton.cdiv(n_keys, _BLOCK)
    threshold_parts = torch.empty(n_queries, n_parts, device=coefficients.device)
    _shrink_backward_kernel[(n_queries, n_parts)](
        coefficients, upstream, threshold_parts, n_keys, scale, l1_ratio, weight,
        BLOCK=_BLOCK,
    )  # fmt: skip
    return upstream, -threshold_parts.sum()
