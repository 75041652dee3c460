"""Small PNG pictures for data addresses, written with zlib alone.

Shapes: h pixels high, w wide.
"""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]

_GREY, _RGB, _PALETTE = 0, 2, 3


def png_bytes(pixels: Pixels, *, palette: Pixels | None = None) -> bytes:
    """Return a PNG file.

    Parameters
    ----------
    pixels : ndarray of uint8, shape (h, w) or (h, w, 3)
        Grey, or red, green and blue.
    palette : ndarray of uint8, shape (256, 3), optional
        Colours of the values of a picture of shape (h, w).
    """
    colour = _RGB if pixels.ndim == 3 else _GREY if palette is None else _PALETTE
    height, width = pixels.shape[:2]
    rows = np.ascontiguousarray(pixels).reshape(height, -1)
    # Each line starts with the number of its filter; 0 stores the values themselves.
    lines = np.zeros((height, rows.shape[1] + 1), dtype=np.uint8)
    lines[:, 1:] = rows
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    parts = [_part(b"IHDR", header)]
    if palette is not None:
        parts.append(_part(b"PLTE", palette.astype(np.uint8).tobytes()))
    parts.append(_part(b"IDAT", zlib.compress(lines.tobytes(), 9)))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts) + _part(b"IEND", b"")


def _part(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return (
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)
    )


def png_address(pixels: Pixels, *, palette: Pixels | None = None) -> str:
    """Return a picture as a ``data:`` address."""
    return "data:image/png;base64," + base64_text(png_bytes(pixels, palette=palette))


def base64_text(data: bytes | NDArray[Any]) -> str:
    """Return bytes, or an array's bytes lowest first, as base64."""
    if isinstance(data, np.ndarray):
        data = data.astype(data.dtype.newbyteorder("<"), copy=False).tobytes()
    return base64.b64encode(data).decode("ascii")


def sprite_sheet(pictures: Pixels, n_columns: int) -> Pixels:
    """Lay pictures (M, h, w) or (M, h, w, 3) out in rows of ``n_columns``."""
    n_rows = -(-len(pictures) // n_columns)
    height, width = pictures.shape[1:3]
    rest = pictures.shape[3:]
    full = np.zeros((n_rows * n_columns, height, width, *rest), dtype=np.uint8)
    full[: len(pictures)] = pictures
    grid = full.reshape(n_rows, n_columns, height, width, *rest).swapaxes(1, 2)
    return np.ascontiguousarray(grid.reshape(n_rows * height, n_columns * width, *rest))
