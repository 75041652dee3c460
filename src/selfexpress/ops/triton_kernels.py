"""GPU kernels of the element-wise steps; imports triton, so import it when needed.

Every function has a plain twin in ``ops.elementwise`` that tests compare it with.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from selfexpress.ops.elementwise import (
    EPSILON,
    FIRST_DECAY,
    SECOND_DECAY,
    SMALLEST_NORM,
)

_BLOCK = 1024


@triton.jit
def _adam_kernel(
    values, gradients, first, second, working, rate, gradient_scale, n_steps, size,
    first_decay: tl.constexpr, second_decay: tl.constexpr, epsilon: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    # Few programs, each walking through many blocks: reading the scalars takes as long
    # as a block does.
    scale = tl.load(gradient_scale)
    step = tl.load(n_steps)
    length = tl.load(rate) / (1 - tl.exp2(step * tl.log2(first_decay)))
    second_bias = 1 - tl.exp2(step * tl.log2(second_decay))
    stride = tl.num_programs(0) * BLOCK
    for start in range(tl.program_id(0) * BLOCK, size, stride):
        place = start + tl.arange(0, BLOCK)
        scaled = scale * tl.load(gradients + place).to(tl.float32)
        mean = tl.load(first + place)
        square = tl.load(second + place)
        value = tl.load(values + place)
        mean += (1 - first_decay) * (scaled - mean)
        square = second_decay * square + (1 - second_decay) * scaled * scaled
        value -= length * mean / (tl.sqrt(square / second_bias) + epsilon)
        tl.store(first + place, mean)
        tl.store(second + place, square)
        tl.store(values + place, value)
        tl.store(working + place, value.to(working.dtype.element_ty))


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
    """See :func:`selfexpress.ops.elementwise.adam_update`; n is a multiple of 1024."""
    size = len(values)
    _adam_kernel[(_n_programs(values, 8),)](
        values, gradients, first, second, working, rate, gradient_scale, n_steps, size,
        first_decay=FIRST_DECAY, second_decay=SECOND_DECAY, epsilon=EPSILON,
        BLOCK=_BLOCK,
    )  # fmt: skip


@triton.jit
def _squares_kernel(gradients, parts, size, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    stride = tl.num_programs(0) * BLOCK
    for start in range(tl.program_id(0) * BLOCK, size, stride):
        value = tl.load(gradients + start + tl.arange(0, BLOCK)).to(tl.float32)
        total += value * value
    tl.store(parts + tl.program_id(0), tl.sum(total))


@triton.jit
def _scale_kernel(parts, scale, n_parts, clip_norm, smallest, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    norm = tl.sqrt(tl.sum(tl.load(parts + place, place < n_parts, 0.0)))
    tl.store(scale, tl.minimum(clip_norm / (norm + smallest), 1.0))


def fused_clipping_scale(gradients: Tensor, clip_norm: float) -> Tensor:
    """See :func:`selfexpress.ops.elementwise.clipping_scale`; n as for Adam."""
    n_parts = _n_programs(gradients, 4)
    parts, scale = (gradients.new_empty(n, dtype=torch.float32) for n in (n_parts, ()))
    _squares_kernel[(n_parts,)](gradients, parts, len(gradients), BLOCK=_BLOCK)
    _scale_kernel[(1,)](
        parts, scale, n_parts, clip_norm, SMALLEST_NORM,
        BLOCK=triton.next_power_of_2(n_parts),
    )  # fmt: skip
    return scale


def _n_programs(vector: Tensor, most_a_unit: int) -> int:
    """Return how many programs walk through a vector together."""
    n_units: int = torch.cuda.get_device_properties(vector.device).multi_processor_count
    n_blocks: int = triton.cdiv(len(vector), _BLOCK)
    return min(n_blocks, most_a_unit * n_units)


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
    """See :meth:`selfexpress.ops.elementwise.Shrinkage.forward`; works in place."""
    n_queries, n_keys = products.shape
    n_parts = triton.cdiv(n_keys, _BLOCK)
    penalties = torch.empty(n_queries, n_parts, device=products.device)
    _shrink_kernel[(n_queries, n_parts)](
        products, threshold, query_index, key_index, penalties,
        n_keys, scale, l1_ratio, BLOCK=_BLOCK,
    )  # fmt: skip
    return products, penalties


@triton.jit
def _shrink_backward_kernel(
    coefficients, upstream, threshold_parts, n_keys, scale, l1_ratio, weight, factor,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = part * BLOCK + tl.arange(0, BLOCK)
    inside = column < n_keys
    place = row * n_keys + column
    coefficient = tl.load(coefficients + place, inside, 0.0).to(tl.float32)
    sign = tl.where(coefficient > 0, 1.0, tl.where(coefficient < 0, -1.0, 0.0))
    slope = l1_ratio * sign + (1 - l1_ratio) * coefficient
    rest = factor * tl.load(upstream + place, inside, 0.0).to(tl.float32)
    gradient = tl.where(coefficient != 0, scale * (rest + weight * slope), 0.0)
    tl.store(upstream + place, gradient.to(upstream.dtype.element_ty), inside)
    part_sum = -tl.sum(gradient * sign)
    tl.store(threshold_parts + row * tl.num_programs(1) + part, part_sum)


def fused_shrink_backward(
    coefficients: Tensor,
    upstream: Tensor,
    scale: float,
    l1_ratio: float,
    weight: float,
    factor: float,
) -> tuple[Tensor, Tensor]:
    """See :meth:`selfexpress.ops.elementwise.Shrinkage.backward`; works in place."""
    n_queries, n_keys = coefficients.shape
    n_parts = triton.cdiv(n_keys, _BLOCK)
    threshold_parts = torch.empty(n_queries, n_parts, device=coefficients.device)
    _shrink_backward_kernel[(n_queries, n_parts)](
        coefficients, upstream, threshold_parts, n_keys, scale, l1_ratio,
        weight, factor, BLOCK=_BLOCK,
    )  # fmt: skip
    return upstream, threshold_parts


@triton.jit
def _activation_backward_kernel(
    upstream, output, bias_parts, n_rows, width, parts_stride, rows_each,
    IS_TANH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    part = tl.program_id(0)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    offset = tl.arange(0, ROWS)[:, None] * width + column[None, :]
    total = tl.zeros((COLUMNS,), tl.float32)
    last = tl.minimum((part + 1) * rows_each, n_rows)
    for first in range(part * rows_each, last, ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row < last)[:, None] & (column < width)[None, :]
        place = first.to(tl.int64) * width + offset  # type: ignore[attr-defined]
        value = tl.load(output + place, inside, 0.0).to(tl.float32)
        gradient = tl.load(upstream + place, inside, 0.0).to(tl.float32)
        if IS_TANH:
            gradient *= 1 - value * value
        else:
            gradient = tl.where(value > 0, gradient, 0.0)
        tl.store(upstream + place, gradient.to(upstream.dtype.element_ty), inside)
        total += tl.sum(gradient, axis=0)
    tl.store(bias_parts + part * parts_stride + column, total, column < width)


def fused_activation_backward(
    upstream: Tensor, output: Tensor, bias_parts: Tensor, kind: str
) -> Tensor:
    """See :func:`selfexpress.ops.elementwise.activation_backward`; in place."""
    n_rows, width = upstream.shape
    n_parts, columns = len(bias_parts), 128
    _activation_backward_kernel[(n_parts, triton.cdiv(width, columns))](
        upstream, output, bias_parts, n_rows, width, bias_parts.stride(0),
        triton.cdiv(n_rows, n_parts), IS_TANH=kind == "tanh", ROWS=32, COLUMNS=columns,
        num_warps=2,
    )  # fmt: skip
    return upstream
