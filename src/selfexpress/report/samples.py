"""Samples as they are shown: small pictures where they are images, rows otherwise.

Shapes: N samples, M of them kept, h pixels high, w wide, d numbers of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from selfexpress.errors import ConfigError, DataError
from selfexpress.report.record import Array, Integers
from selfexpress.rows.sources import RowSource

# Larger pictures are averaged down to this side, longer rows to this length.
_SIDE = 64
_N_NUMBERS = 128


def shown_samples(
    X: Any, index: Integers, *, image_shape: Sequence[int] | None = None
) -> Array:
    """Return pictures (M, h, w) or (M, h, w, 3) of uint8, or rows (M, d) of float32.

    ``X`` holds rows (N, D), or images (N, h, w), (N, h, w, 3) or (N, 3, h, w);
    ``image_shape`` says that each row is an image of this shape.
    """
    rows = _take(X, index)
    if image_shape is not None:
        rows = _reshaped(rows, tuple(image_shape))
    if rows.ndim == 2:
        return _shortened(rows.astype(np.float32))
    images = _bytes(_channels_last(rows))
    factor = -(-max(images.shape[1:3]) // _SIDE)
    if factor == 1:
        return images
    return np.stack(
        [np.asarray(Image.fromarray(each).reduce(factor)) for each in images]
    )


def _take(X: Any, index: Integers) -> Array:
    if isinstance(X, RowSource):
        return X.take(torch.from_numpy(index.astype(np.int64))).cpu().numpy()
    if isinstance(X, Tensor):
        taken = X.detach()[torch.from_numpy(index.astype(np.int64))].cpu()
        # NumPy has no bfloat16.
        return (taken.float() if taken.dtype == torch.bfloat16 else taken).numpy()
    return np.asarray(np.asarray(X)[index])


def _reshaped(rows: Array, shape: tuple[int, ...]) -> Array:
    flat = rows.reshape(len(rows), -1)
    is_shape = len(shape) in (2, 3) and all(n > 0 for n in shape)
    if not is_shape or int(np.prod(shape)) != flat.shape[1]:
        raise ConfigError(
            f"image_shape must be a height and a width whose product is the "
            f"{flat.shape[1]} numbers of a row, got {shape}. Leave it out if the "
            "rows are no images."
        )
    return flat.reshape(len(rows), *shape)


def _channels_last(images: Array) -> Array:
    is_first = images.ndim == 4 and images.shape[1] == 3 and images.shape[3] != 3
    images = np.moveaxis(images, 1, 3) if is_first else images
    if images.ndim == 4 and images.shape[3] == 1:
        images = images[..., 0]
    if images.ndim != 3 and not (images.ndim == 4 and images.shape[3] == 3):
        raise DataError(
            "Samples must be rows, or images that are grey or have 3 channels, got "
            f"shape {images.shape[1:]} each. Reshape them."
        )
    return np.ascontiguousarray(images)


def _bytes(images: Array) -> NDArray[np.uint8]:
    """Scale numbers of any kind to 0 to 255, bytes excepted."""
    if images.dtype == np.uint8:
        return images
    values = np.nan_to_num(images.astype(np.float64), posinf=0, neginf=0)
    low = float(values.min(initial=0))
    high = float(values.max(initial=0))
    scaled = (values - low) * (255 / (high - low or 1))
    return scaled.round().astype(np.uint8)


def _shortened(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Average neighbouring numbers of rows that are too long to be drawn."""
    length = rows.shape[1]
    if length <= _N_NUMBERS:
        return rows
    starts = np.arange(_N_NUMBERS) * length // _N_NUMBERS
    sizes = np.diff(np.append(starts, length))
    sums = np.add.reduceat(rows, starts, axis=1)
    return (sums / sizes).astype(np.float32)
