"""Bilinear resizing of images, as image libraries do it.

Shapes: B images, (H, W) before and (h, w) after.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

# 8-bit images are resized in integers: weights are multiples of 2**-22, which leaves
# room for 8 bits of image and 2 of sum in 32, the precision image libraries use.
_WEIGHT_SCALE = 2.0**22


def resize_bilinear(images: Tensor, shape: tuple[int, int]) -> Tensor:
    """Resize images, widening the triangle when shrinking so that nothing aliases.

    Parameters
    ----------
    images : Tensor of shape (B, H, W)
        With dtype uint8 the result is rounded to 8 bits after each axis, rows first,
        and equals Pillow's bit for bit where Pillow takes the axes in that order.
        Any other dtype is resized in its own precision.
    shape : tuple of int
        Height and width wanted.

    Returns
    -------
    Tensor of shape (B, h, w)
        Of the same dtype.
    """
    down = _weights(images.shape[1], shape[0]).to(images.device)
    across = _weights(images.shape[2], shape[1]).to(images.device)
    if images.dtype == torch.uint8:
        return _resize_integers(images, down, across)
    wide = images @ across.T.to(images.dtype)  # (B, H, w)
    return down.to(images.dtype) @ wide


def _resize_integers(images: Tensor, down: Tensor, across: Tensor) -> Tensor:
    # Doubles hold every sum of integers here exactly.
    down, across = (
        torch.floor(weights * _WEIGHT_SCALE + 0.5) for weights in (down, across)
    )
    wide = _round_to_8_bits(images.double() @ across.T)  # (B, H, w)
    return _round_to_8_bits(down @ wide).to(torch.uint8)


def _round_to_8_bits(sums: Tensor) -> Tensor:
    return torch.floor(sums / _WEIGHT_SCALE + 0.5).clamp_(0, 255)


@functools.lru_cache(maxsize=16)
def _weights(size: int, new_size: int) -> Tensor:
    """Return the (new_size, size) weights of a triangle around each new pixel."""
    step = size / new_size
    slope = 1 / max(step, 1.0)
    centre = (torch.arange(new_size, dtype=torch.float64) + 0.5) * step
    # Rounding of the last bit shows in 8-bit results: the order of operations matters.
    distance = torch.arange(size, dtype=torch.float64) - centre[:, None] + 0.5
    weights = (1 - (distance * slope).abs()).clamp_(min=0)
    # Added up from left to right: sum() pairs its terms.
    return weights / weights.cumsum(dim=1)[:, -1:]
