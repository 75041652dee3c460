"""Compiled passes of the scattering cascade on a processor, one thread each.

They do what ``cascade`` does with torch, in one pass over memory each, and give up the
interpreter's lock, so that several threads can scatter at once.

Shapes: n planes, L angles, s stride, (H, W) spectrum, (h, w) folded spectrum.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from torch import Tensor


def filter_and_fold(spectrum: Tensor, parts: Tensor, stride: int) -> Tensor:
    """Return the folded spectra (n, L, h, w) of every filter's output.

    Parameters
    ----------
    spectrum : Tensor of shape (n, H, W), complex
    parts : Tensor of shape (s s, L, 2 h w)
        Filters cut up as ``cascade`` describes.
    stride : int
        1 or an even number.
    """
    filters = parts.numpy()
    n_planes, height, width = spectrum.shape
    shape = (n_planes, filters.shape[1], height // stride, width // stride)
    outputs = np.empty(shape, spectrum.numpy().dtype)
    _filter_and_fold(
        spectrum.numpy().view(filters.dtype),
        filters,
        stride,
        outputs.view(filters.dtype).reshape(n_planes, filters.shape[1], -1),
    )
    return torch.from_numpy(outputs)


def modulus(values: Tensor) -> Tensor:
    """Return |values| of complex values."""
    array = values.numpy()
    outputs = np.empty(array.shape, array.real.dtype)
    _modulus(array.view(outputs.dtype).reshape(-1), outputs.reshape(-1))
    return torch.from_numpy(outputs)


@njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def _filter_and_fold(spectrum, parts, stride, outputs):  # type: ignore[no-untyped-def]
    n_planes, n_angles, size = outputs.shape
    n_parts = stride * stride
    cut = np.empty((n_parts, size), outputs.dtype)
    for plane in range(n_planes):
        _cut(spectrum[plane], stride, cut)
        for angle in range(n_angles):
            output = outputs[plane, angle]
            if n_parts == 1:
                first, filter_1 = cut[0], parts[0, angle]
                for i in range(size):
                    output[i] = first[i] * filter_1[i]
                continue
            # Four parts a pass: each pass reads and writes the output once.
            output[:] = 0
            for part in range(0, n_parts, 4):
                first, filter_1 = cut[part], parts[part, angle]
                second, filter_2 = cut[part + 1], parts[part + 1, angle]
                third, filter_3 = cut[part + 2], parts[part + 2, angle]
                fourth, filter_4 = cut[part + 3], parts[part + 3, angle]
                for i in range(size):
                    output[i] += (
                        first[i] * filter_1[i]
                        + second[i] * filter_2[i]
                        + third[i] * filter_3[i]
                        + fourth[i] * filter_4[i]
                    )


@njit(nogil=True, cache=True)
def _cut(spectrum, stride, cut):  # type: ignore[no-untyped-def]
    """Lay the s x s parts of one spectrum (H, 2 W) one after the other."""
    height = spectrum.shape[0] // stride
    width = spectrum.shape[1] // stride
    for down in range(stride):
        for row in range(height):
            for right in range(stride):
                source = spectrum[down * height + row, right * width :]
                target = cut[down * stride + right, row * width :]
                for i in range(width):
                    target[i] = source[i]


@njit(nogil=True, cache=True, fastmath=True)
def _modulus(pairs, outputs):  # type: ignore[no-untyped-def]
    for i in range(outputs.size):
        real, imaginary = pairs[2 * i], pairs[2 * i + 1]
        outputs[i] = (real * real + imaginary * imaginary) ** 0.5
