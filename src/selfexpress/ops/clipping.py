"""How far a gradient is scaled down to a largest norm."""

from __future__ import annotations

import torch
from torch import Tensor

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
