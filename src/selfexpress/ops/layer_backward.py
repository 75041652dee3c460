"""Backward through an activation, and the bias before it, in one step.

Shapes: M rows, W units of a layer, S parts of a sum.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Rows are added up in this many parts, one after the other on a CPU.
N_PARTS = 64


def activation_backward(
    upstream: Tensor, output: Tensor, bias_parts: Tensor, *, kind: str
) -> Tensor:
    """Return the gradient before an activation; write the bias's in parts.

    Parameters
    ----------
    upstream, output : Tensor of shape (M, W)
        Gradient of the layer's output, overwritten where that saves memory, and the
        output.
    bias_parts : Tensor of shape (S, W)
        Overwritten; its sum over the first axis is the gradient of the bias.
    kind : {"relu", "tanh"}
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
