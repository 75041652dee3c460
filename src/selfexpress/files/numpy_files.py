"""Arrays in ``.npy`` and ``.npz`` files, with every size checked before it is used."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from selfexpress.errors import DataError
from selfexpress.files.formats import (
    Array,
    Container,
    Entry,
    check_kind,
    check_stored_size,
    check_unpacked_size,
    container_format,
)

# NumPy itself refuses longer headers; 12 bytes come before the header's text.
_PREFIX_BYTES = 10_000 + 12
_PIECE_BYTES = 2**20


@dataclass(frozen=True)
class _Header:
    entry: Entry
    is_fortran: bool
    offset: int


@contextmanager
def open_npy(path: Path) -> Iterator[Container]:
    """Open a ``.npy`` file as a container of one array."""
    header = _file_header(path)

    def read(_name: str) -> Array:
        with path.open("rb") as stream:
            stream.seek(header.offset)
            entry = header.entry
            values = np.fromfile(stream, entry.dtype, count=entry.n_values)
        return _shaped(values, header)

    yield Container({"array": header.entry}, read)


def map_npy(path: Path) -> Array:
    """Return the array of a ``.npy`` file without reading it, as a ``np.memmap``."""
    header = _file_header(path)
    check_kind(header.entry, "biuf", path)
    if not header.entry.n_bytes:
        return np.empty(header.entry.shape)
    array: Array = np.memmap(
        path,
        dtype=header.entry.dtype,
        mode="r",
        offset=header.offset,
        shape=header.entry.shape,
        order="F" if header.is_fortran else "C",
    )
    return array


def write_npy(path: Path, _name: str, array: Array) -> None:
    """Write one array."""
    np.save(path, array, allow_pickle=False)


@contextmanager
def open_npz(path: Path) -> Iterator[Container]:
    """Open an archive of ``.npy`` members; nothing is ever unpacked to disk."""
    with zipfile.ZipFile(path) as archive:
        members = {
            info.filename.removesuffix(".npy"): info
            for info in archive.infolist()
            if info.filename.endswith(".npy")
        }
        headers = {
            name: _member_header(archive, info, path) for name, info in members.items()
        }

        def read(name: str) -> Array:
            return _read_member(archive, members[name], headers[name], path)

        yield Container({name: header.entry for name, header in headers.items()}, read)


def write_npz(path: Path, name: str, array: Array) -> None:
    """Write an archive of one named array, uncompressed."""
    arrays: dict[str, Any] = {name: array}
    np.savez(path, **arrays)


NPY = container_format(open_npy, write_npy, writes_text=True)
NPZ = container_format(open_npz, write_npz, writes_text=True)


def _file_header(path: Path) -> _Header:
    with path.open("rb") as stream:
        prefix = stream.read(_PREFIX_BYTES)
    return _parse_header(prefix, path.stat().st_size, path)


def _member_header(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path
) -> _Header:
    # Only these two methods can be unpacked piece by piece within a bound.
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise DataError(
            f"{path} must be stored or deflated, got zip method {info.compress_type}. "
            "Write it with numpy.savez or numpy.savez_compressed."
        )
    with archive.open(info) as stream:
        prefix = stream.read(_PREFIX_BYTES)
    return _parse_header(prefix, info.file_size, path)


def _parse_header(prefix: bytes, file_size: int, path: Path) -> _Header:
    """Read shape and type from the first bytes of a ``.npy`` file."""
    stream = io.BytesIO(prefix)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    try:
        version = np.lib.format.read_magic(stream)
        shape, is_fortran, dtype = readers[version](stream)
    except (ValueError, KeyError) as error:
        raise DataError(
            f"{path} must be a NumPy array file, but its header cannot be read. "
            "The file is damaged or of another kind: write it with numpy.save."
        ) from error
    entry = Entry(shape, dtype)
    check_stored_size(entry, file_size - stream.tell(), path)
    return _Header(entry, is_fortran, stream.tell())


def _read_member(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, header: _Header, path: Path
) -> Array:
    check_unpacked_size(info.file_size, path)
    data = bytearray(header.entry.n_bytes)
    with archive.open(info) as stream:
        stream.read(header.offset)
        filled = 0
        while piece := stream.read(min(_PIECE_BYTES, len(data) - filled)):
            data[filled : filled + len(piece)] = piece
            filled += len(piece)
        # The checksum is compared only when the end is met.
        while stream.read(_PIECE_BYTES):
            pass
    if filled < len(data):
        raise DataError(
            f"{path} ends {len(data) - filled} bytes before its array does. The file "
            "is cut short: write or fetch it again."
        )
    return _shaped(np.frombuffer(data, header.entry.dtype), header)


def _shaped(values: Array, header: _Header) -> Array:
    return values.reshape(header.entry.shape, order="F" if header.is_fortran else "C")
