"""Colours that are equally strong to the eye, mixed in the OKLCH space."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

# Hues of the first clusters, in degrees, told apart best; further ones follow the
# golden angle, which never comes close to a hue it has already given.
_HUES = (255, 45, 150, 15, 300, 95, 200, 340, 125, 275)
_GOLDEN_ANGLE = 137.508
_LIGHTNESS = (0.62, 0.70, 0.64, 0.60, 0.66)

_TO_ROOTS = np.array(
    [
        [1, 0.3963377774, 0.2158037573],
        [1, -0.1055613458, -0.0638541728],
        [1, -0.0894841775, -1.2914855480],
    ]
)
_TO_RGB = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)


def group_colours(count: int) -> list[str]:
    """Return a colour for each of ``count`` groups, as ``#rrggbb``.

    Every colour has a contrast of at least 2 on white and on near-black.
    """
    colours = []
    for place in range(count):
        hue = _HUES[place] if place < len(_HUES) else place * _GOLDEN_ANGLE
        lightness = _LIGHTNESS[place % len(_LIGHTNESS)]
        colours.append(hex_colour(oklch(lightness, 0.16, hue)))
    return colours


def ramp(count: int) -> NDArray[np.uint8]:
    """Return ``count`` colours from near-black over violet and orange to pale yellow.

    Lightness grows evenly, so that the ramp also reads in grey. Shape (count, 3).
    """
    stops = np.linspace(0, 1, count)
    lightness = 0.14 + 0.83 * stops
    chroma = 0.02 + 0.17 * np.sin(np.pi * stops**0.85) ** 0.8
    hue = 285 + 170 * stops
    colours = [oklch(*values) for values in zip(lightness, chroma, hue, strict=True)]
    return np.round(255 * np.array(colours)).astype(np.uint8)


def blend(first: float, last: float, count: int) -> list[str]:
    """Return ``count`` colours from one hue straight over grey to another."""
    ends = [0.16 * np.exp(1j * math.radians(hue)) for hue in (first, last)]
    colours = []
    for share in np.linspace(0, 1, count):
        middle = (1 - share) * ends[0] + share * ends[1]
        hue = math.degrees(np.angle(middle))
        colours.append(hex_colour(oklch(0.68, abs(middle), hue)))
    return colours


def hex_colour(colour: NDArray[np.float64]) -> str:
    """Return red, green and blue from 0 to 1 as ``#rrggbb``."""
    red, green, blue = np.round(255 * colour).astype(int)
    return f"#{red:02x}{green:02x}{blue:02x}"


def oklch(lightness: float, chroma: float, hue: float) -> NDArray[np.float64]:
    """Return red, green and blue from 0 to 1 of an OKLCH colour; hue in degrees.

    The matrices are those of the OKLab colour space (B. Ottosson, 2020).
    """
    angle = math.radians(hue)
    lab = (lightness, chroma * math.cos(angle), chroma * math.sin(angle))
    linear = np.clip(_TO_RGB @ (_TO_ROOTS @ lab) ** 3, 0, 1)
    curved = 1.055 * linear ** (1 / 2.4) - 0.055
    colour: NDArray[np.float64] = np.where(linear <= 0.0031308, 12.92 * linear, curved)
    return np.clip(colour, 0, 1)
