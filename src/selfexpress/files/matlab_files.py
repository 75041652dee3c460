"""Numeric arrays in MATLAB ``.mat`` files of level 5 (``-v6`` and ``-v7``).

Read here rather than by SciPy, which makes room for whatever size the file claims.
A file is a header of 128 bytes and a row of elements, each a type, a size and that
many bytes; an array is an element made of flags, dimensions, name and values, packed
by zlib as a whole or not at all.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

import numpy as np

from selfexpress.errors import DataError
from selfexpress.files.formats import (
    Array,
    Container,
    Entry,
    check_stored_size,
    check_unpacked_size,
    container_format,
)

_HEADER_BYTES = 128
_MATRIX, _COMPRESSED = 14, 15
# Flags, dimensions and name fit in far less for any array that NumPy could hold.
_PREFIX_BYTES = 1024
_VALUE_TYPES = {
    1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4",
    7: "f4", 9: "f8", 12: "i8", 13: "u8",
}  # fmt: skip
_NUMERIC_CLASSES = range(6, 16)
_COMPLEX_FLAG = 0x0800


@dataclass(frozen=True)
class _Variable:
    """Where an array lies in its file, and where its values lie in the array."""

    name: str
    entry: Entry
    position: int
    n_bytes: int
    is_compressed: bool
    values_at: int


@contextmanager
def open_mat(path: Path) -> Iterator[Container]:
    """Open a MATLAB file as named arrays; all but full real arrays are unreadable."""
    with path.open("rb") as stream:
        order = _byte_order(stream.read(_HEADER_BYTES), path)
        found = {part.name: part for part in _variables(stream, order, path)}

        def read(name: str) -> Array:
            return _read_values(stream, found[name], path)

        # MATLAB keeps the data behind objects in a nameless array.
        entries = {name: part.entry for name, part in found.items() if name}
        yield Container(entries, read)


def write_mat(path: Path, name: str, array: Array) -> None:
    """Write one named array; labels become a column, as MATLAB has no vectors."""
    from scipy.io import savemat

    savemat(path, {name: array}, oned_as="column")


MAT = container_format(open_mat, write_mat, writes_text=False)


def _byte_order(header: bytes, path: Path) -> str:
    order = {b"IM": "<", b"MI": ">"}.get(header[126:128])
    if header[:8] == b"\x89HDF\r\n\x1a\n" or header.startswith(b"MATLAB 7.3"):
        raise DataError(
            f"{path} must be a MATLAB file of version 5 to 7, got version 7.3 (HDF5). "
            "Save it with '-v7', or as .npy."
        )
    if order is None:
        raise DataError(
            f"{path} must be a MATLAB file of version 5 to 7, but its header is of "
            "another kind. Save it with '-v7', or as .npy."
        )
    return order


def _variables(stream: BinaryIO, order: str, path: Path) -> Iterator[_Variable]:
    """Walk the elements of the file, reading no more than the start of each."""
    file_size = path.stat().st_size
    position = _HEADER_BYTES
    while position < file_size:
        stream.seek(position)
        tag = stream.read(8)
        if len(tag) < 8:
            _refuse(path)
        kind, n_bytes = struct.unpack(order + "II", tag)
        position += 8
        if position + n_bytes > file_size:
            _refuse(path)
        if kind in (_MATRIX, _COMPRESSED):
            is_compressed = kind == _COMPRESSED
            prefix = stream.read(min(n_bytes, _PREFIX_BYTES))
            if is_compressed:
                prefix = zlib.decompressobj().decompress(prefix, _PREFIX_BYTES)
            name, entry, values_at = _array_header(
                prefix[8:] if is_compressed else prefix, order, path
            )
            values_at += 8 if is_compressed else 0
            yield _Variable(name, entry, position, n_bytes, is_compressed, values_at)
        position += n_bytes


def _array_header(data: bytes, order: str, path: Path) -> tuple[str, Entry, int]:
    """Return name, shape and type, and where the values start, of an array element."""
    _, flags_at, _, after = _element(data, 0, order, path)
    flags = struct.unpack_from(order + "I", data, flags_at)[0]
    _, dims_at, dims_bytes, after = _element(data, after, order, path)
    shape = struct.unpack_from(f"{order}{dims_bytes // 4}i", data, dims_at)
    _, name_at, name_bytes, after = _element(data, after, order, path)
    name = data[name_at : name_at + name_bytes].decode("latin1")

    if flags & 0xFF not in _NUMERIC_CLASSES or flags & _COMPLEX_FLAG:
        return name, Entry(shape, np.dtype(object)), 0
    if min(shape, default=0) <= 0:
        return name, Entry(shape, np.dtype("f8")), 0
    kind, values_at, values_bytes, _ = _element(
        data, after, order, path, is_whole=False
    )
    if kind not in _VALUE_TYPES:
        _refuse(path)
    entry = Entry(shape, np.dtype(order + _VALUE_TYPES[kind]))
    check_stored_size(entry, values_bytes, path)
    return name, entry, values_at


def _element(
    data: bytes, position: int, order: str, path: Path, *, is_whole: bool = True
) -> tuple[int, int, int, int]:
    """Return type, start, size and end of the element at a position."""
    if position + 8 > len(data):
        _refuse(path)
    kind, n_bytes = struct.unpack_from(order + "II", data, position)
    start = position + 8
    if kind >> 16:
        # Up to four bytes are stored inside the tag itself.
        kind, n_bytes, start = kind & 0xFFFF, kind >> 16, position + 4
        end = position + 8
    else:
        end = start + 8 * math.ceil(n_bytes / 8)
    if is_whole and end > len(data):
        _refuse(path)
    return kind, start, n_bytes, end


def _read_values(stream: BinaryIO, variable: _Variable, path: Path) -> Array:
    entry = variable.entry
    stream.seek(variable.position)
    data = stream.read(variable.n_bytes)
    if variable.is_compressed:
        end = variable.values_at + entry.n_bytes
        check_unpacked_size(end, path)
        # Asking for more than the values makes zlib reach and compare its checksum.
        data = zlib.decompressobj().decompress(data, end + 64)
    check_stored_size(entry, len(data) - variable.values_at, path)
    values = np.frombuffer(data, entry.dtype, entry.n_values, variable.values_at)
    return values.reshape(entry.shape, order="F").copy(order="K")


def _refuse(path: Path) -> NoReturn:
    raise DataError(
        f"{path} must be a whole MATLAB file, but ends early or is damaged. "
        "Write or fetch it again."
    )
