"""Images as the encoder sees them: checked, cut into a grid of views, averaged.

Shapes: N images, V views of an image, H x W pixels, D dimensions of a layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from reproduction.encoder.augment import Crop, crop_side, cut_patches, standardise
from reproduction.encoder.resnet import EncoderNetwork
from selfexpress.errors import DataError

# Patches that go through the network together.
_PATCHES_AT_ONCE = {"cuda": 8192, "cpu": 512}


@dataclass(frozen=True)
class ViewSettings:
    """Which views of an image are averaged; see `CodingRateEncoder`."""

    grid_size: int
    crop_area: float
    patch_size: int
    mixed_precision: bool

    @property
    def n_views(self) -> int:
        """Number V of views: a grid of patches and their mirror images."""
        return 2 * self.grid_size**2


def check_images(X: ArrayLike | Tensor, *, least: int = 1) -> Tensor:
    """Return colour images as a uint8 tensor of shape (N, 3, H, W).

    Parameters
    ----------
    X : array or Tensor of shape (N, H, W, 3) or (N, 3, H, W), uint8
    least : int
        Smallest number of images.

    Raises
    ------
    DataError
        If ``X`` is anything else.
    """
    images = X if isinstance(X, Tensor) else torch.from_numpy(_as_bytes(X))
    if images.ndim != 4 or 3 not in (images.shape[1], images.shape[3]):
        raise DataError(
            "Images must have the shape (N, height, width, 3) or (N, 3, height, width),"
            f" got {tuple(images.shape)}. Repeat a grey image's channel three times."
        )
    if images.dtype != torch.uint8:
        raise _wrong_type(images.dtype)
    if images.shape[1] != 3:
        images = images.permute(0, 3, 1, 2)
    if len(images) < least or min(images.shape[2:]) < 16:
        raise DataError(
            f"At least {least} images of at least 16 x 16 pixels are needed, got "
            f"{len(images)} of {images.shape[2]} x {images.shape[3]}. "
            "Give more, or resize them."
        )
    return images.contiguous()


def layer_blocks(
    network: EncoderNetwork,
    images: Tensor,
    *,
    layers: tuple[str, ...],
    settings: ViewSettings,
) -> Iterator[dict[str, Tensor]]:
    """Yield the named layers, averaged over views, for block after block of images."""
    device = next(network.parameters()).device
    at_once = _PATCHES_AT_ONCE.get(device.type, 512)
    for block in images.split(max(1, at_once // settings.n_views)):
        views = _cut_views(block.to(device).float().div_(255), settings)
        with (
            torch.inference_mode(),
            torch.autocast(
                device.type, torch.bfloat16, enabled=settings.mixed_precision
            ),
        ):
            found = network.layers(views, layers)
            averages = {
                name: rows.unflatten(0, (settings.n_views, len(block))).mean(dim=0)
                for name, rows in found.items()
            }
        yield averages


def _cut_views(images: Tensor, settings: ViewSettings) -> Tensor:
    """Return all first views of the images, then all second ones: (V N, 3, S, S)."""
    n_images, _, height, width = images.shape
    side = crop_side(height, width, settings.crop_area)
    grid = view_grid(side, (height, width), settings.grid_size, device=images.device)
    crop = Crop(
        side,
        top=grid.top.repeat_interleave(n_images),
        left=grid.left.repeat_interleave(n_images),
        flip=grid.flip.repeat_interleave(n_images),
    )
    copies = images.repeat(settings.n_views, 1, 1, 1)
    return standardise(cut_patches(copies, crop, settings.patch_size))


def view_grid(
    side: int,
    image_size: tuple[int, int],
    grid_size: int,
    *,
    device: torch.device | str = "cpu",
) -> Crop:
    """Return evenly spaced squares from edge to edge, as they are and then flipped.

    A grid of one is the centre. Squares start at whole pixels: training has seen no
    others.
    """
    if grid_size == 1:
        steps = torch.full((1,), 0.5, device=device)
    else:
        steps = torch.linspace(0, 1, grid_size, device=device)
    height, width = image_size
    tops, lefts = torch.meshgrid(
        (steps * (height - side)).round(),
        (steps * (width - side)).round(),
        indexing="ij",
    )
    top, left = tops.flatten(), lefts.flatten()
    flip = torch.arange(2 * len(top), device=device) >= len(top)
    return Crop(side, top=top.repeat(2), left=left.repeat(2), flip=flip)


def _as_bytes(X: ArrayLike) -> np.ndarray:
    """Return a writable copy, which torch can share; refuse types it does not know."""
    images = np.array(X)
    if images.dtype != np.uint8:
        raise _wrong_type(images.dtype)
    return images


def _wrong_type(dtype: object) -> DataError:
    return DataError(
        f"Images must be of type uint8 with values from 0 to 255, got {dtype}. "
        "Scale and round them first."
    )
