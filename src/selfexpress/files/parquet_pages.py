"""How much a Parquet file claims to hold, read from its own page headers.

The library that reads the pages makes room for whatever their headers claim, so they
are walked first. They and the footer are structs of Thrift's compact protocol: fields
with a number, a type and a value, integers of variable length.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from pathlib import Path
from typing import Any, BinaryIO

from selfexpress.errors import DataError

_MAGIC = b"PAR1"
_MAX_DEPTH = 32
# A header holds a few numbers and, for text, the least and greatest value of a page.
_PAGE_HEADER_BYTES = 2**16

# Numbers of the fields, from the format's definition.
_ROW_GROUPS = 4
_COLUMNS = 1
_CHUNK_METADATA = 3
_PATH, _N_VALUES, _CHUNK_BYTES, _DATA_OFFSET, _DICTIONARY_OFFSET = 3, 5, 7, 9, 11
_UNPACKED_BYTES, _PACKED_BYTES = 2, 3
_VALUE_COUNTS = (5, 7, 8)  # headers of a data page, a dictionary, a data page v2


def claimed_bytes(path: Path, columns: Collection[str]) -> int:
    """Return an upper bound on the memory that some columns of numbers need.

    Every page counts with its unpacked bytes and eight bytes for each of its values.
    """
    try:
        return _claimed_bytes(path, {name.encode() for name in columns})
    except (LookupError, TypeError, OverflowError) as error:
        raise _damage(path) from error


def _claimed_bytes(path: Path, wanted: Collection[bytes]) -> int:
    file_size = path.stat().st_size
    total = n_walked = 0
    with path.open("rb") as stream:
        for chunk in _column_chunks(_footer(stream, file_size, path)):
            n_walked += chunk[_CHUNK_BYTES]
            # Chunks do not overlap; if they did, the walk could take for ever.
            if n_walked > file_size:
                raise _damage(path)
            if chunk[_PATH][0] in wanted:
                total += _chunk_claim(stream, chunk, path)
    return total


def _footer(stream: BinaryIO, file_size: int, path: Path) -> dict[int, Any]:
    stream.seek(max(file_size - 8, 0))
    tail = stream.read(8)
    size = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or size > file_size - 12:
        raise _damage(path)
    stream.seek(file_size - 8 - size)
    return _Decoder(stream.read(size)).struct(0)


def _column_chunks(footer: dict[int, Any]) -> list[dict[int, Any]]:
    return [
        column[_CHUNK_METADATA]
        for group in footer[_ROW_GROUPS]
        for column in group[_COLUMNS]
    ]


def _chunk_claim(stream: BinaryIO, chunk: dict[int, Any], path: Path) -> int:
    """Add up what the pages of one column chunk claim."""
    if chunk[_N_VALUES] == 0:  # its pages are not read
        return 0
    # A dictionary, where there is one, comes first.
    offsets = [chunk[_DATA_OFFSET], chunk.get(_DICTIONARY_OFFSET, 0)]
    position = min(offset for offset in offsets if offset)
    end = position + chunk[_CHUNK_BYTES]
    claim = 0
    while position < end:
        stream.seek(position)
        header = _Decoder(stream.read(_PAGE_HEADER_BYTES))
        fields = header.struct(0)
        unpacked, packed = fields[_UNPACKED_BYTES], fields[_PACKED_BYTES]
        counts = [fields[key][1] for key in _VALUE_COUNTS if key in fields]
        if min(unpacked, packed, *counts, header.position - 1) < 0:
            raise _damage(path)
        claim += unpacked + 8 * sum(counts)
        position += header.position + packed
    return claim


def _damage(path: Path) -> DataError:
    return DataError(
        f"{path} must be a whole Parquet file, but ends early or is damaged. "
        "Write or fetch it again."
    )


class _Decoder:
    """Values of Thrift's compact protocol; whatever is not one is an IndexError."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def struct(self, depth: int) -> dict[int, Any]:
        """Return fields by their number."""
        if depth > _MAX_DEPTH:
            raise IndexError("structs are nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            step, kind = head >> 4, head & 0x0F
            number = number + step if step else self._integer(depth)
            # In a field, unlike in a list, the type is the value of a boolean.
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        readers = {
            1: self._flag, 2: self._flag, 3: self._flag,
            4: self._integer, 5: self._integer, 6: self._integer,
            7: self._double, 8: self._binary, 9: self._list, 10: self._list,
            12: self.struct,
        }  # fmt: skip
        if kind not in readers:
            raise IndexError(f"type {kind} is not used in Parquet")
        return readers[kind](depth + 1)

    def _byte(self) -> int:
        value = self._data[self.position]
        self.position += 1
        return value

    def _flag(self, _depth: int) -> int:
        return self._byte()

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            piece = self._byte()
            value |= (piece & 0x7F) << shift
            shift += 7
            if piece < 0x80:
                return value
            if shift > 63:
                raise IndexError("an integer is too long")

    def _integer(self, _depth: int) -> int:
        # Zigzag: the last bit is the sign.
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)

    def _double(self, _depth: int) -> float:
        self.position += 8
        value: float = struct.unpack_from("<d", self._data, self.position - 8)[0]
        return value

    def _binary(self, _depth: int) -> bytes:
        size = self._unsigned()
        start = self.position
        if start + size > len(self._data):
            raise IndexError("text goes beyond the end")
        self.position = start + size
        return self._data[start : start + size]

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        size, kind = head >> 4, head & 0x0F
        if size == 15:
            size = self._unsigned()
        # Every member takes a byte or more, so a lie about the size ends early.
        return [self._value(kind, depth) for _ in range(size)]
