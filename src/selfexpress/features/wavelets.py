"""Morlet wavelets and the Gaussian low-pass filter of a scattering transform.

Every filter is real in the Fourier domain and lives on a periodic grid, the padded
image. The bank follows Bruna and Mallat (2013) with the constants of kymatio 0.3, so
that coefficients of the two can be compared digit by digit.

Shapes: L angles, (H, W) padded image.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.fft
from numpy.typing import NDArray

# Copies of the grid, in each direction, that a filter is summed over to be periodic.
_COPIES = range(-2, 3)
# Below exp(-104) a term is under half the smallest single-precision number.
_VANISHING = -104.0


@dataclass(frozen=True)
class FilterBank:
    """Fourier transforms of the wavelets and of the low-pass filter.

    Attributes
    ----------
    wavelets : tuple of ndarray of shape (L, H, W), float32
        One array per scale j = 0, ..., J - 1, finest first.
    lowpass : ndarray of shape (H, W), float32
    """

    wavelets: tuple[NDArray[np.float32], ...]
    lowpass: NDArray[np.float32]

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of the padded image."""
        height, width = self.lowpass.shape
        return height, width


def filter_bank(shape: tuple[int, int], n_scales: int, n_angles: int) -> FilterBank:
    """Build the filters of a padded image.

    Parameters
    ----------
    shape : tuple of int
        Height and width of the padded image, multiples of ``2**n_scales``.
    n_scales, n_angles : int
        J and L of the scattering transform.
    """
    wavelets = tuple(
        np.stack([_wavelet(shape, scale, angle, n_angles) for angle in range(n_angles)])
        for scale in range(n_scales)
    )
    envelope = _gabor(shape, sigma=0.8 * 2 ** (n_scales - 1), angle=0.0, frequency=0.0)
    return FilterBank(wavelets=wavelets, lowpass=_spectrum(envelope))


def at_resolution(filters: NDArray[np.float32], scale: int) -> NDArray[np.float32]:
    """Keep the frequencies that a grid ``2**scale`` times coarser can hold."""
    for axis in (-2, -1):
        size = filters.shape[axis]
        half = size >> (scale + 1)
        kept = np.r_[0:half, size - half : size]
        filters = np.take(filters, kept, axis=axis)
    return filters


def _wavelet(
    shape: tuple[int, int], scale: int, angle: int, n_angles: int
) -> NDArray[np.float32]:
    """Return the Morlet wavelet: a Gabor function made to have zero mean."""
    sigma = 0.8 * 2**scale
    # The order of the angles is free; this one makes channels comparable to kymatio's.
    theta = (int(n_angles - n_angles / 2 - 1) - angle) * np.pi / n_angles
    frequency = 3.0 / 4.0 * np.pi / 2**scale
    slant = 4.0 / n_angles
    wave = _gabor(shape, sigma=sigma, angle=theta, frequency=frequency, slant=slant)
    envelope = _gabor(shape, sigma=sigma, angle=theta, frequency=0.0, slant=slant)
    return _spectrum(wave - np.sum(wave) / np.sum(envelope) * envelope)


def _gabor(
    shape: tuple[int, int],
    *,
    sigma: float,
    angle: float,
    frequency: float,
    slant: float = 1.0,
) -> NDArray[np.complex64]:
    """Return a Gaussian of width ``sigma``, modulated along ``angle``, on a torus.

    The sum over the copies of the grid is kept in single precision and its order is
    fixed: filters so rounded are what the published coefficients were computed with,
    and differ from exact ones by less than 1e-6.
    """
    height, width = shape
    precision = _precision_matrix(angle, slant) / (2 * sigma * sigma)
    total = np.zeros(shape, np.complex64)
    for down in _COPIES:
        for right in _COPIES:
            y = np.arange(down * height, (down + 1) * height)[:, None]
            x = np.arange(right * width, (right + 1) * width)[None, :]
            decay = -(
                precision[0, 0] * (y * y)
                + (precision[0, 1] + precision[1, 0]) * (y * x)
                + precision[1, 1] * (x * x)
            )
            if decay.max() < _VANISHING:
                continue
            phase = y * frequency * np.cos(angle) + x * frequency * np.sin(angle)
            total += np.exp(decay + 1j * phase)
    # 3.1415 and not pi: another constant of the published coefficients.
    total /= 2 * 3.1415 * sigma * sigma / slant
    return total


def _precision_matrix(angle: float, slant: float) -> NDArray[np.float64]:
    """Return R diag(1, slant^2) R^T for the rotation R, known in single precision."""
    cosine, sine = np.cos(angle), np.sin(angle)
    rotation = np.array([[cosine, -sine], [sine, cosine]], np.float32)
    axes = np.array([[1.0, 0.0], [0.0, slant * slant]])
    return rotation @ (axes @ rotation.T)


def _spectrum(signal: NDArray[np.complex64]) -> NDArray[np.float32]:
    # The signal is Hermitian: what is dropped is rounding error.
    return np.asarray(scipy.fft.fft2(signal).real, dtype=np.float32)
