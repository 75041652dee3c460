"""The scattering cascade: wavelets, modulus and low-pass, order by order.

All convolutions are products in the Fourier domain. A result that is kept at a coarser
resolution is folded there *before* the inverse transform, so no transform is larger
than what it returns. The low-pass filter at the end only feeds a few outputs, and
is one matrix product.

Shapes: B images, n planes (an image, or an image and an angle), L angles, (H, W)
padded image, (h, w) a coarser resolution, P outputs of a channel.
"""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selfexpress.features.wavelets import FilterBank, at_resolution

# The low-pass filter as a matrix costs P products a pixel; beyond this many the
# Fourier transform is cheaper.
_MAX_DENSE_OUTPUTS = 256


def padded_shape(image_shape: tuple[int, int], n_scales: int) -> tuple[int, int]:
    """Return the size of the periodic grid: a multiple of ``2**J`` with a border."""
    step = 2**n_scales
    height, width = ((side // step + 2) * step for side in image_shape)
    return height, width


def n_channels(n_scales: int, n_angles: int, max_order: int) -> int:
    """Count the channels: 1 of order 0, J L of order 1, J (J-1) / 2 L^2 of order 2."""
    first = n_angles * n_scales
    second = n_angles**2 * n_scales * (n_scales - 1) // 2
    return 1 + first + (second if max_order == 2 else 0)


class Cascade:
    """Scattering of batches of single-channel images on one device.

    Parameters
    ----------
    bank : FilterBank
    image_shape : tuple of int
        Height and width of the images, before padding.
    max_order : {1, 2}
    dtype : torch.dtype
        float32 or float64.
    device : torch.device
    """

    def __init__(
        self,
        bank: FilterBank,
        image_shape: tuple[int, int],
        *,
        max_order: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        n_scales = len(bank.wavelets)
        self._n_scales = n_scales
        self._max_order = max_order
        self._dtype = dtype
        self._rows, self._columns = (
            _reflection(side, padded).to(device)
            for side, padded in zip(image_shape, bank.shape, strict=True)
        )
        self._first = [
            _FoldedFilters.build(bank.wavelets[scale], 2**scale, dtype, device)
            for scale in range(n_scales)
        ]
        self._second = {
            (coarse, fine): _FoldedFilters.build(
                at_resolution(bank.wavelets[coarse], fine),
                2 ** (coarse - fine),
                dtype,
                device,
            )
            for fine in range(n_scales if max_order == 2 else 0)
            for coarse in range(fine + 1, n_scales)
        }
        self._lowpass = [
            _lowpass(
                at_resolution(bank.lowpass, scale),
                2 ** (n_scales - scale),
                dtype,
                device,
            )
            for scale in range(n_scales)
        ]

    def __call__(self, images: Tensor) -> Tensor:
        """Return the coefficients (B, channels, P) of images (B, height, width)."""
        padded = images.to(self._dtype)[:, self._rows[:, None], self._columns]
        spectrum = torch.fft.fft2(padded)  # (B, H, W)
        zeroth = self._lowpass[0](padded)[:, None]  # (B, 1, P)
        first, second = [], []
        for scale in range(self._n_scales):
            envelopes = self._first[scale].envelopes(spectrum)  # (B, L, h, w)
            first.append(self._lowpass[scale](envelopes))  # (B, L, P)
            if self._max_order == 2 and scale + 1 < self._n_scales:
                second.append(self._second_order(envelopes, scale))
        return torch.cat([zeroth, *first, *second], dim=1)

    def _second_order(self, envelopes: Tensor, fine: int) -> Tensor:
        """Return (B, L * coarser scales * L, P), the later angle running fastest."""
        n_images, n_angles = envelopes.shape[:2]
        spectrum = torch.fft.fft2(envelopes.flatten(0, 1))  # (B L, h, w)
        outputs = [
            self._lowpass[coarse](self._second[coarse, fine].envelopes(spectrum))
            for coarse in range(fine + 1, self._n_scales)
        ]
        stacked = torch.cat(outputs, dim=1)  # (B L, coarser scales * L, P)
        return stacked.reshape(n_images, n_angles * stacked.shape[1], -1)


@dataclass(frozen=True)
class _FoldedFilters:
    """Filters of one scale, cut up so that filtering and subsampling are one step.

    Subsampling by s in space adds up the s x s parts of the spectrum. ``parts`` holds
    each filter's part beside that of the others, every value twice for the real and
    the imaginary number it multiplies.
    """

    parts: Tensor  # (s s, L, 2 h w)
    stride: int

    @classmethod
    def build(
        cls,
        filters: NDArray[np.float32],
        stride: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> _FoldedFilters:
        tensor = torch.from_numpy(filters).to(device=device, dtype=dtype)
        parts = _spectral_parts(tensor, stride) / stride**2
        return cls(parts.flatten(2).repeat_interleave(2, dim=-1), stride)

    def envelopes(self, spectrum: Tensor) -> Tensor:
        """Return the modulus (n, L, h, w) of every filter's output."""
        compiled = None if spectrum.is_cuda else _compiled()
        outputs: Tensor
        if compiled is None:
            outputs = torch.fft.ifft2(self._fold(spectrum)).abs()
        else:
            spectra = compiled.filter_and_fold(spectrum, self.parts, self.stride)
            outputs = compiled.modulus(torch.fft.ifft2(spectra))
        return outputs

    def _fold(self, spectrum: Tensor) -> Tensor:
        """Return the folded spectra (n, L, h, w) of every filter's output."""
        n_planes, height, width = spectrum.shape
        shape = (n_planes, -1, height // self.stride, width // self.stride, 2)
        parts = torch.view_as_real(_spectral_parts(spectrum, self.stride))
        parts = parts.flatten(2)[:, :, None]  # (s s, n, 1, 2 h w)
        product = parts[0] * self.parts[0]  # (n, L, 2 h w)
        for part, filters in zip(parts[1:], self.parts[1:], strict=True):
            product.addcmul_(part, filters)
        return torch.view_as_complex(product.view(shape))


def _spectral_parts(spectrum: Tensor, stride: int) -> Tensor:
    """Cut (n, h s, w s) into the parts (s s, n, h, w) that subsampling adds up."""
    n_planes, height, width = spectrum.shape
    small = (height // stride, width // stride)
    cut = spectrum.reshape(n_planes, stride, small[0], stride, small[1])
    return cut.permute(1, 3, 0, 2, 4).reshape(stride**2, n_planes, *small)


@functools.cache
def _compiled() -> ModuleType | None:
    """Return the compiled passes; torch does their work where numba is not."""
    if importlib.util.find_spec("numba") is None:
        return None
    from selfexpress.features import compiled_cascade

    return compiled_cascade


def _reflection(side: int, padded: int) -> Tensor:
    """Return, for each padded position, the pixel that reflection puts there."""
    before = (padded - side) // 2
    period = max(2 * (side - 1), 1)
    position = (torch.arange(padded) - before) % period
    return torch.minimum(position, period - position)


@dataclass(frozen=True)
class _DenseLowpass:
    """Low-pass filter, subsampling and removal of the border as one matrix."""

    matrix: Tensor  # (h w, P)

    def __call__(self, planes: Tensor) -> Tensor:
        """Return (..., P) for planes (..., h, w)."""
        return planes.flatten(-2) @ self.matrix


@dataclass(frozen=True)
class _SpectralLowpass:
    """The same map by Fourier transforms, for images with many outputs."""

    parts: Tensor  # (s s, 1, h / s, w / s)
    stride: int

    def __call__(self, planes: Tensor) -> Tensor:
        """Return (..., P) for planes (..., h, w)."""
        spectrum = torch.fft.fft2(planes.flatten(0, -3))
        folded = (_spectral_parts(spectrum, self.stride) * self.parts).sum(0)
        outputs: Tensor = torch.fft.ifft2(folded).real[:, 1:-1, 1:-1]
        return outputs.reshape(*planes.shape[:-2], -1)


def _lowpass(
    lowpass: NDArray[np.float32],
    stride: int,
    dtype: torch.dtype,
    device: torch.device,
) -> _DenseLowpass | _SpectralLowpass:
    """Choose the cheaper form of the low-pass filter at one resolution."""
    spectrum = torch.from_numpy(lowpass).double()
    height, width = (side // stride - 2 for side in spectrum.shape)
    if height * width <= _MAX_DENSE_OUTPUTS:
        matrix = _lowpass_matrix(spectrum, stride)
        return _DenseLowpass(matrix.to(device=device, dtype=dtype))
    parts = _spectral_parts(spectrum[None], stride) / stride**2
    return _SpectralLowpass(parts.to(device=device, dtype=dtype), stride)


def _lowpass_matrix(spectrum: Tensor, stride: int) -> Tensor:
    """Tabulate the periodic kernel at (output - pixel) for every pair of the two."""
    kernel: Tensor = torch.fft.ifft2(spectrum).real  # (h, w)
    # The first and the last output of each axis belong to the border.
    down, right = (
        (torch.arange(1, side // stride - 1) * stride - torch.arange(side)[:, None])
        % side
        for side in kernel.shape
    )  # (h, outputs down), (w, outputs right)
    table = kernel[down[:, None, :, None], right[None, :, None, :]]
    return table.flatten(2).flatten(0, 1)
