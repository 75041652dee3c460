"""The element-wise steps between the matrix products of a training step.

On a GPU each is one kernel of ``ops.triton_kernels``, elsewhere plain torch.

Shapes: B queries, K keys, M rows, W units of a layer, S parts of a sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from selfexpress.ops.self_expression import elastic_net, soft_threshold, without_self


@dataclass(frozen=True)
class Shrinkage:
    """Inner products to coefficients and back, without autograd.

    ``scale`` is the factor of the thresholded products, 1/p.
    """

    scale: float
    l1_ratio: float

    def forward(
        self,
        products: Tensor,
        threshold: Tensor,
        *,
        query_index: Tensor,
        key_index: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return coefficients, (B, K), and parts whose sum is their elastic net.

        The coefficient is 0 where query and key index are equal. ``products``, (B, K),
        are overwritten where that saves memory; the parts may have any shape.
        """
        if products.is_cuda:
            from selfexpress.ops.triton_kernels import fused_shrink

            return fused_shrink(
                products,
                threshold,
                query_index,
                key_index,
                self.scale,
                self.l1_ratio,
            )
        coefficients = self.scale * soft_threshold(products, threshold)
        coefficients = without_self(coefficients, query_index, key_index)
        return coefficients, elastic_net(coefficients, self.l1_ratio)

    def backward(
        self,
        coefficients: Tensor,
        upstream: Tensor,
        *,
        weight: float,
        factor: float,
    ) -> tuple[Tensor, Tensor]:
        """Return the gradient of the products, (B, K), and parts of the threshold's.

        The objective is ``weight`` times the elastic net and a rest, whose gradient by
        the coefficients is ``factor * upstream``; ``upstream`` may be overwritten.
        """
        if coefficients.is_cuda:
            from selfexpress.ops.triton_kernels import fused_shrink_backward

            return fused_shrink_backward(
                coefficients, upstream, self.scale, self.l1_ratio, weight, factor
            )
        sign = torch.sign(coefficients)
        slope = self.l1_ratio * sign + (1 - self.l1_ratio) * coefficients
        gradient = torch.where(
            coefficients != 0, self.scale * (factor * upstream + weight * slope), 0
        )
        return gradient, -(gradient * sign).sum()


# Rows are added up in this many parts, one after the other on a CPU.
N_PARTS = 64


def activation_backward(
    upstream: Tensor, output: Tensor, bias_parts: Tensor, *, kind: str
) -> Tensor:
    """Return the gradient before an activation of ``kind`` "relu" or "tanh".

    ``upstream``, (M, W), is the gradient of the layer's ``output`` and overwritten
    where that saves memory. The gradient of the bias is the sum of ``bias_parts``,
    (S, W), over the first axis; they are overwritten.
    """
    if upstream.is_cuda:
        from selfexpress.ops.triton_kernels import fused_activation_backward

        return fused_activation_backward(upstream, output, bias_parts, kind)
    gradient: Tensor
    if kind == "relu":
        gradient = torch.ops.aten.threshold_backward(upstream, output, 0)
    else:
        gradient = torch.ops.aten.tanh_backward(upstream, output)
    bias_parts.zero_()
    torch.sum(gradient, dim=0, out=bias_parts[0])
    return gradient


# Keeps a gradient of zero from a division by zero; that of torch's clipping.
SMALLEST_NORM = 1e-6


def clipping_scale(gradients: Tensor, clip_norm: float) -> Tensor:
    """Return the factor, at most 1, that bounds the norm of flat gradients."""
    if gradients.is_cuda:
        from selfexpress.ops.triton_kernels import fused_clipping_scale

        return fused_clipping_scale(gradients, clip_norm)
    dtype = torch.promote_types(gradients.dtype, torch.float32)
    norm = torch.linalg.vector_norm(gradients, dtype=dtype)
    return torch.clamp(clip_norm / (norm + SMALLEST_NORM), max=1)


FIRST_DECAY, SECOND_DECAY, EPSILON = 0.9, 0.999, 1e-8


def adam_update(
    values: Tensor,
    gradients: Tensor,
    first: Tensor,
    second: Tensor,
    *,
    rate: Tensor,
    gradient_scale: Tensor,
    n_steps: Tensor,
    working: Tensor,
) -> None:
    """Update ``values``, both momenta and ``working`` in place.

    ``first`` and ``second`` are the running means of gradients and their squares;
    ``gradient_scale`` is a factor of the gradients, and ``n_steps`` counts this step,
    too. ``working`` becomes a copy of ``values`` in its type, or is the same tensor.
    """
    if values.is_cuda:
        from selfexpress.ops.triton_kernels import fused_adam_update

        state = (values, gradients, first, second)
        fused_adam_update(*state, rate, gradient_scale, n_steps, working)
        return
    scaled = gradients * gradient_scale
    first.lerp_(scaled, 1 - FIRST_DECAY)
    second.mul_(SECOND_DECAY).addcmul_(scaled, scaled, value=1 - SECOND_DECAY)
    first_bias = -torch.expm1(n_steps * math.log(FIRST_DECAY))
    second_bias = -torch.expm1(n_steps * math.log(SECOND_DECAY))
    sizes = torch.sqrt(second / second_bias).add_(EPSILON)
    values -= rate / first_bias * first / sizes
    if working is not values:
        working.copy_(values)
