"""Bytes of files whose size and checksum are known beforehand.

Nothing here allocates by a size that a file states about itself: buffers have the size
that the caller expects, and reading stops one byte after it.
"""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path
from typing import IO, Protocol

from selfexpress.errors import DataError, one_line

BLOCK_BYTES = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
# Packed bytes looked at together; few, as what is left over of them is copied.
PACKED_BYTES = 1 << 16
# What makes zlib expect gzip's header and compare its checksum.
GZIP_WINDOW = 16 + zlib.MAX_WBITS


class Readable(Protocol):
    """Anything that hands out bytes in order."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, none at the end."""
        ...


class BoundedReader:
    """A stream that refuses to hand out more than ``limit`` bytes in all."""

    def __init__(self, stream: Readable, limit: int, *, source: str) -> None:
        self._stream = stream
        self._left = limit
        self._limit = limit
        self._source = source

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes; raise DataError past the limit."""
        data = self._stream.read(min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise DataError(
                f"{self._source} must unpack to at most {self._limit} bytes, but holds "
                "more. Fetch the published file instead."
            )
        return data


class GunzipReader:
    """Unpacks one gzip member, which must be all there is.

    Not the standard library's: that one reads zeros behind a member byte by byte, and
    a few packed kilobytes of them keep it busy for hours.
    """

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._unpacker = zlib.decompressobj(GZIP_WINDOW)

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes, none at the end.

        Raises
        ------
        zlib.error, EOFError
            If the member is damaged, ends early or is followed by something.
        """
        while not self._unpacker.eof:
            packed = self._unpacker.unconsumed_tail or self._stream.read(PACKED_BYTES)
            if not packed:
                raise EOFError("the gzip stream ends early")
            if data := self._unpacker.decompress(packed, size):
                return data
        if self._unpacker.unused_data or self._stream.read(1):
            raise EOFError("something follows the gzip stream")
        return b""


def content_checksum(content: bytes | bytearray | memoryview, like: str) -> str:
    """Return the checksum of ``content`` with the algorithm that ``like`` names."""
    algorithm = like.partition(":")[0]
    digest = hashlib.new(algorithm, content, usedforsecurity=False)
    return f"{algorithm}:{digest.hexdigest()}"


def stream_checksum(stream: IO[bytes], like: str) -> str:
    """Return the checksum of what is left in ``stream``, read in blocks."""
    algorithm = like.partition(":")[0]
    digest = hashlib.new(algorithm, usedforsecurity=False)
    while block := stream.read(BLOCK_BYTES):
        digest.update(block)
    return f"{algorithm}:{digest.hexdigest()}"


def require_checksum(
    found: str, expected: str, *, source: str, problem: str = ""
) -> None:
    """Raise DataError unless the checksums agree and no ``problem`` was met."""
    if found == expected and not problem:
        return
    detail = f" ({problem})" if problem else ""
    raise DataError(
        f"{source} must have the checksum {expected}, found {found}{detail}. It is "
        "damaged or not the published file: delete it and fetch the data set again."
    )


def open_file(path: Path) -> IO[bytes]:
    """Open a regular file for reading, or raise DataError."""
    if not path.is_file():
        raise DataError(
            f"{path} must be a file, and it is not. Fetch the data set again."
        )
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(
            f"{path} must be readable, but opening it failed: {one_line(error)}. "
            "Check its permissions."
        ) from error


def read_verified(path: Path, *, size: int, checksum: str) -> bytes:
    """Return the bytes of ``path``, which must have this size and checksum."""
    with open_file(path) as stream:
        content = stream.read(size + 1)
        if len(content) == size:
            found, problem = content_checksum(content, checksum), ""
        else:
            stream.seek(0)
            found = stream_checksum(stream, checksum)
            problem = f"it is not {size} bytes long"
    require_checksum(found, checksum, source=str(path), problem=problem)
    return content


def read_unpacked(path: Path, *, size: int, checksum: str) -> bytearray:
    """Return what ``path`` holds, gunzipped, with this size and checksum afterwards."""
    with open_file(path) as stream:
        content, problem = unpack(stream, limit=size)
    if not problem and len(content) < size:
        problem = f"it ends after {len(content)} of {size} bytes"
    require_checksum(
        content_checksum(content, checksum),
        checksum,
        source=f"The content of {path}",
        problem=problem,
    )
    return content


def unpack(stream: IO[bytes], *, limit: int) -> tuple[bytearray, str]:
    """Return up to ``limit`` bytes of an unpacked stream, and what is wrong with it."""
    content = bytearray()
    unpacked = open_gzip(stream)
    try:
        while len(content) < limit:
            block = unpacked.read(min(BLOCK_BYTES, limit - len(content)))
            if not block:
                return content, ""
            content += block
        # Reading past the end also makes gzip check its own checksum and length.
        if unpacked.read(1):
            return content, f"it goes on after {limit} bytes"
    except (OSError, EOFError, zlib.error) as error:
        return content, f"it cannot be unpacked: {one_line(error)}"
    return content, ""


def open_gzip(stream: IO[bytes]) -> Readable:
    """Return ``stream`` unpacked if it is gzip, else the stream itself.

    A ``.gz`` that is not gzip is taken as it is: servers and browsers are known to
    unpack such files on the way.
    """
    is_gzip = stream.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    stream.seek(0)
    return GunzipReader(stream) if is_gzip else stream
