"""Colours that are equally strong to the eye, and pictures as ``data:`` addresses.

Shapes: h pixels high, w wide.
"""

from __future__ import annotations

import base64
import io
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from selfexpress.report.record import Floats

Pixels = NDArray[np.uint8]

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
    return [
        oklch(
            _LIGHTNESS[place % len(_LIGHTNESS)],
            0.16,
            _HUES[place] if place < len(_HUES) else place * _GOLDEN_ANGLE,
        )
        for place in range(count)
    ]


def blend(first: float, last: float, count: int) -> list[str]:
    """Return ``count`` colours from one hue straight over grey to another."""
    start, end = (0.16 * np.exp(1j * math.radians(hue)) for hue in (first, last))
    between = start + np.linspace(0, 1, count) * (end - start)
    return [oklch(0.68, abs(c), math.degrees(np.angle(c))) for c in between]


def oklch(lightness: float, chroma: float, hue: float) -> str:
    """Return an OKLCH colour as ``#rrggbb``; hue in degrees.

    The matrices are those of the OKLab colour space (B. Ottosson, 2020).
    """
    angle = math.radians(hue)
    lab = (lightness, chroma * math.cos(angle), chroma * math.sin(angle))
    linear = np.clip(_TO_RGB @ (_TO_ROOTS @ lab) ** 3, 0, 1)
    curved = 1.055 * linear ** (1 / 2.4) - 0.055
    colour = np.clip(np.where(linear <= 0.0031308, 12.92 * linear, curved), 0, 1)
    red, green, blue = np.round(255 * colour).astype(int)
    return f"#{red:02x}{green:02x}{blue:02x}"


def heat_address(picture: Floats) -> str:
    """Return a picture of |C| in which small values still show.

    Square roots of the values, the brightest 1 % of those that are not zero cut off.
    """
    from matplotlib import colormaps

    shown = picture[picture > 0]
    top = float(np.quantile(shown, 0.99)) if shown.size else 1.0
    tones = np.round(255 * np.sqrt(np.clip(picture / top, 0, 1))).astype(np.uint8)
    image = Image.fromarray(tones)
    image.putpalette(colormaps["magma"](range(256), bytes=True)[:, :3].tobytes())
    return _address(image)


def png_address(pixels: Pixels) -> str:
    """Return pixels (h, w) or (h, w, 3) as the address of a PNG picture."""
    return _address(Image.fromarray(pixels))


def _address(image: Image.Image) -> str:
    content = io.BytesIO()
    image.save(content, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()


def base64_text(array: NDArray[Any]) -> str:
    """Return an array's bytes, lowest first, as base64."""
    data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return base64.b64encode(data).decode("ascii")


def sprite_sheet(pictures: Pixels, n_columns: int) -> Pixels:
    """Lay pictures (M, h, w) or (M, h, w, 3) out in rows of ``n_columns``."""
    n_rows = -(-len(pictures) // n_columns)
    padding = np.zeros(
        (n_rows * n_columns - len(pictures), *pictures.shape[1:]), np.uint8
    )
    full = np.concatenate([pictures, padding])
    height, width, *rest = pictures.shape[1:]
    grid = full.reshape(n_rows, n_columns, height, width, *rest).swapaxes(1, 2)
    return np.ascontiguousarray(grid.reshape(n_rows * height, n_columns * width, *rest))
