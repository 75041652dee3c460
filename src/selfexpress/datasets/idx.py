"""The IDX format of MNIST and its relatives: unsigned bytes behind a short header.

A header is two zero bytes, the type (8 for unsigned bytes), the number of dimensions
and each dimension as a big-endian 32-bit integer. The shape is known beforehand, so the
header is compared with it and never decides how much is read or allocated.
"""

from __future__ import annotations

import math
import struct

import numpy as np
from numpy.typing import NDArray

from selfexpress.datasets.verified import Readable
from selfexpress.errors import DataError

UNSIGNED_BYTE = 8
IMAGES_PER_READ = 4096


def parse_idx(
    content: bytearray, shape: tuple[int, ...], *, source: str
) -> NDArray[np.uint8]:
    """Return the array in ``content`` without copying it.

    Parameters
    ----------
    content : bytearray
        A whole IDX file, unpacked.
    shape : tuple of int
        What the header must say.
    source : str
        Name of the file, for the error.

    Raises
    ------
    DataError
        If the header differs from ``shape`` or the length does not fit it.
    """
    header = _header_bytes(shape)
    _check_header(bytes(content[: len(header)]), shape, source=source)
    if len(content) != len(header) + math.prod(shape):
        raise DataError(
            f"{source} must hold {len(header) + math.prod(shape)} bytes, got "
            f"{len(content)}. Fetch the data set again."
        )
    return np.frombuffer(content, np.uint8, offset=len(header)).reshape(shape)


def read_idx_selected(
    stream: Readable,
    shape: tuple[int, ...],
    *,
    keep: NDArray[np.bool_],
    source: str,
) -> NDArray[np.uint8]:
    """Return the records of an IDX stream where ``keep`` is true.

    Memory holds the kept records and one block of the stream, never the whole.
    """
    header = _header_bytes(shape)
    _check_header(_read_exactly(stream, len(header), source), shape, source=source)
    kept = np.empty((int(keep.sum()), *shape[1:]), np.uint8)
    n_kept = 0
    for start in range(0, shape[0], IMAGES_PER_READ):
        chosen = keep[start : start + IMAGES_PER_READ]
        block = _read_exactly(stream, len(chosen) * math.prod(shape[1:]), source)
        records = np.frombuffer(block, np.uint8).reshape(-1, *shape[1:])[chosen]
        kept[n_kept : n_kept + len(records)] = records
        n_kept += len(records)
    # Also makes gzip check its own checksum and length.
    if stream.read(1):
        raise DataError(
            f"{source} must end after {shape[0]} records, but goes on. Fetch the "
            "data set again."
        )
    return kept


def _header_bytes(shape: tuple[int, ...]) -> bytes:
    """Return the header of an IDX file of unsigned bytes."""
    n_dims = len(shape)
    return struct.pack(f">BBBB{n_dims}I", 0, 0, UNSIGNED_BYTE, n_dims, *shape)


def _check_header(header: bytes, shape: tuple[int, ...], *, source: str) -> None:
    """Raise DataError unless ``header`` announces unsigned bytes of ``shape``."""
    if header == _header_bytes(shape):
        return
    raise DataError(
        f"{source} must begin with the IDX header of unsigned bytes of shape {shape}, "
        f"{_header_bytes(shape).hex()}, got {header.hex()}. Fetch the data set again."
    )


def _read_exactly(stream: Readable, size: int, source: str) -> bytes:
    """Return ``size`` bytes of ``stream``, which may hand them out in pieces."""
    pieces = []
    left = size
    while left:
        piece = stream.read(left)
        if not piece:
            raise DataError(
                f"{source} must hold {left} more bytes, but ends. Fetch the data set "
                "again."
            )
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)
