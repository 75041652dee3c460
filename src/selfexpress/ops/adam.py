"""One Adam update of a flat vector of parameters."""

from __future__ import annotations

import math

import torch
from torch import Tensor

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

    Parameters
    ----------
    values, gradients, first, second : Tensor of shape (n,)
        Parameters, gradients and the running means of gradients and their squares.
    rate, gradient_scale, n_steps : Tensor of shape ()
        Learning rate, factor of the gradients, and steps done with this one.
    working : Tensor of shape (n,)
        Becomes a copy of ``values`` in its own type; may be ``values`` itself.
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
