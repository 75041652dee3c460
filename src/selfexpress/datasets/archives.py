"""Members of zip, tar and npz archives, read into memory and never written.

Members are asked for by their exact name. An archive with a name that points outside
it, or with a link, is refused as a whole: no published data set has one.
"""

from __future__ import annotations

import io
import math
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import IO

import numpy as np
from numpy.typing import NDArray

from selfexpress.datasets.verified import BoundedReader, Readable
from selfexpress.errors import DataError, SelfExpressError, one_line

# What the standard library raises on damaged archives; RuntimeError stands for
# encrypted members, unknown compression and endless nesting.
DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    ValueError,
    TypeError,
    LookupError,
    OverflowError,
    RuntimeError,
)
TAR_BLOCK_BYTES = 1 << 20
# Version 1.0 as NumPy writes it. Matched rather than evaluated, so that a damaged
# header has no say in anything; the two bytes skipped are the header's own length.
NPY_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '(?P<dtype>[<>|](?:[iu][1248]|f[248]|b1))', "
    rb"'fortran_order': (?P<order>True|False), "
    rb"'shape': \((?P<shape>(?:\d{1,18}(?:, |,)?){0,8})\), \} *\n",
    re.DOTALL,
)
# tarfile keeps every header it has met: without a limit many empty members fill memory.
MOST_TAR_MEMBERS = 64


@contextmanager
def refusing_damage(source: str) -> Iterator[None]:
    """Turn whatever a damaged archive makes the standard library raise to DataError."""
    try:
        yield
    except SelfExpressError:
        raise
    except DAMAGE as error:
        raise DataError(
            f"{source} must be a whole archive, but reading it failed: "
            f"{one_line(error)}. Delete it and fetch the data set again."
        ) from error


@contextmanager
def open_zip_member(
    archive: zipfile.ZipFile, name: str, *, folders: tuple[str, ...], source: str
) -> Iterator[IO[bytes]]:
    """Open the one member called ``name`` in the root or in one of ``folders``."""
    wanted = {name, *(f"{folder}/{name}" for folder in folders)}
    found = [info for info in archive.infolist() if info.filename in wanted]
    if len(found) != 1:
        raise DataError(
            f"{source} must hold one member {name}, found {len(found)}. Fetch the "
            "data set again."
        )
    with archive.open(found[0]) as stream:
        yield stream


def check_zip_members(archive: zipfile.ZipFile, *, source: str) -> None:
    """Raise DataError if a member is a link or has a name outside the archive."""
    for info in archive.infolist():
        _check_member_name(info.filename, source=source)
        # The other methods cannot be unpacked piece by piece.
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _unsafe_member(info.filename, "compressed oddly", source=source)
        if stat.S_ISLNK(info.external_attr >> 16):
            raise _unsafe_member(info.filename, "a link", source=source)


def read_tar_members(
    stream: Readable, sizes: Mapping[str, int], *, limit: int, source: str
) -> dict[str, bytes]:
    """Return the members named in ``sizes``, each of exactly that many bytes.

    Parameters
    ----------
    stream : readable
        The unpacked tar.
    sizes : mapping of str to int
    limit : int
        Bytes that the whole tar may have.
    source : str
        Name of the archive, for errors.
    """
    contents: dict[str, bytes] = {}
    bounded = BoundedReader(stream, limit, source=source)
    with (
        refusing_damage(source),
        tarfile.open(
            fileobj=bounded,  # type: ignore[call-overload]
            mode="r|",
            bufsize=TAR_BLOCK_BYTES,
        ) as archive,
    ):
        for n_before, member in enumerate(archive):
            _check_tar_member(member, n_before, source=source)
            if member.name in sizes:
                _check_size(member, sizes[member.name], source=source)
                contents[member.name] = archive.extractfile(member).read()
    missing = sorted(set(sizes) - set(contents))
    if missing:
        raise DataError(
            f"{source} must hold {', '.join(sizes)}, but lacks {', '.join(missing)}. "
            "Fetch the data set again."
        )
    return contents


def read_npz(
    content: bytes, *, limit: int, source: str
) -> dict[str, NDArray[np.generic]]:
    """Return every array of an npz archive of at most ``limit`` bytes unpacked."""
    with refusing_damage(source), zipfile.ZipFile(io.BytesIO(content)) as archive:
        check_zip_members(archive, source=source)
        announced = sum(info.file_size for info in archive.infolist())
        if announced > limit:
            raise DataError(
                f"{source} must unpack to at most {limit} bytes, but announces "
                f"{announced}. Fetch the published file instead."
            )
        return {
            info.filename.removesuffix(".npy"): parse_npy(
                _read_zip_member(archive, info),
                source=f"{info.filename} in {source}",
            )
            for info in archive.infolist()
        }


def parse_npy(content: bytes, *, source: str) -> NDArray[np.generic]:
    """Return the array in a whole .npy file without copying it.

    The shape is believed only if it fits the bytes at hand, and only plain numbers are
    read: an array of Python objects is a pickle.
    """
    header = NPY_HEADER.match(content)
    if header is None:
        raise DataError(
            f"{source} must be a .npy file of plain numbers, got a file that begins "
            f"with {content[:80]!r}. Fetch the data set again."
        )
    start = header.end()
    shape = tuple(int(n) for n in header["shape"].split(b",") if n.strip())
    dtype = np.dtype(header["dtype"].decode())
    if math.prod(shape) * dtype.itemsize != len(content) - start:
        raise DataError(
            f"{source} must have as many bytes as shape {shape} and dtype {dtype} "
            f"need, got {len(content) - start}. Fetch the data set again."
        )
    array = np.frombuffer(content, dtype, offset=start)
    return array.reshape(shape, order="F" if header["order"] == b"True" else "C")


def _read_zip_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Return a member's content, unpacking no more bytes than it announces."""
    with archive.open(info) as stream:
        # With the size spelled out: read() alone would unpack all there is and cut it.
        return stream.read(info.file_size)


def _check_tar_member(member: tarfile.TarInfo, n_before: int, *, source: str) -> None:
    """Raise DataError if a tar member is neither file nor folder, or points outside."""
    if n_before >= MOST_TAR_MEMBERS:
        raise DataError(
            f"{source} must hold at most {MOST_TAR_MEMBERS} members, but holds more. "
            "Fetch the published file instead."
        )
    _check_member_name(member.name, source=source)
    if not (member.isreg() or member.isdir()):
        raise _unsafe_member(member.name, "a link or device", source=source)


def _check_member_name(name: str, *, source: str) -> None:
    """Raise DataError if a member's name would lead outside a folder."""
    path = PurePosixPath(name.replace("\\", "/"))
    # A colon stands for a Windows drive, which is absolute as well.
    if path.is_absolute() or ".." in path.parts or ":" in name:
        raise _unsafe_member(name, "a path outside the archive", source=source)


def _unsafe_member(name: str, what: str, *, source: str) -> DataError:
    return DataError(
        f"{source} must hold plain files only, but member {one_line(repr(name))} is "
        f"{what}. Do not unpack it; fetch the published file."
    )


def _check_size(member: tarfile.TarInfo, size: int, *, source: str) -> None:
    """Raise DataError unless a member has the size expected of it."""
    if member.size != size:
        raise DataError(
            f"Member {member.name} of {source} must have {size} bytes, got "
            f"{member.size}. Fetch the data set again."
        )
