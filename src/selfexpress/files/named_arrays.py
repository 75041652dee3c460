"""Arrays by name in ``.npy``, ``.npz``, ``.mat`` and ``.safetensors`` files.

Shape and type of an array are learned from the file's own header and checked before
the library makes room for it; no pickle is ever loaded.
"""

from __future__ import annotations

import io
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from selfexpress.errors import DataError

Array = NDArray[Any]

# Data whose unpacked size is below the first limit is read whatever it was packed
# into; above it, a ratio to the file's size that real features do not reach.
HARMLESS_BYTES = 64 * 2**20
MAX_UNPACKED_RATIO = 200

ROW_NAMES = ("X", "data", "features", "fea", "images")
LABEL_NAMES = ("labels", "label", "y", "gnd", "truth", "target")
# NumPy refuses longer headers; 12 bytes come before the header's text.
_HEADER_BYTES = 10_000 + 12
# What scipy.sparse.save_npz writes of every matrix.
_OF_SPARSE = {"format", "shape", "data"}
# Of MATLAB files: what stands before the arrays, a packed element, the classes of
# arrays of numbers, the flag of complex ones, the types of values.
_MAT_HEADER_BYTES = 128
_MAT_COMPRESSED = 15
_MAT_NUMBERS = range(6, 16)
_MAT_COMPLEX = 0x0800
_MAT_TYPES = {
    1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4",
    7: "f4", 9: "f8", 12: "i8", 13: "u8",
}  # fmt: skip


@dataclass(frozen=True)
class Format:
    """How files of one suffix are read, by a name or None, and written."""

    read_rows: Callable[[Path, str | None], Array]
    read_labels: Callable[[Path, str | None], Array]
    write_rows: Callable[[Path, Array], None]
    write_labels: Callable[[Path, Array], None]


@dataclass(frozen=True)
class Entry:
    """Shape and type of an array inside a file, known before it is read.

    ``dtype`` is ``object`` for whatever is not an array of numbers or text.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def n_bytes(self) -> int:
        """Size in memory, in exact arithmetic: headers may claim any shape."""
        return 0 if self.dtype.hasobject else self.n_values * self.dtype.itemsize

    @property
    def n_values(self) -> int:
        """Number of values, in exact arithmetic."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Arrays:
    """An open file of named arrays: what it holds, and a function that reads one."""

    entries: Mapping[str, Entry]
    read: Callable[[str], Array]


@contextmanager
def open_npy(path: Path) -> Iterator[Arrays]:
    """Open a ``.npy`` file as one array without a name."""
    with path.open("rb") as stream:
        entry = _npy_entry(stream, path.stat().st_size, path)
    yield Arrays({"array": entry}, lambda _: np.load(path, allow_pickle=False))


def map_npy(path: Path) -> Array:
    """Return the array of a ``.npy`` file without reading it, as a ``np.memmap``."""
    with open_npy(path) as arrays:
        entry = arrays.entries["array"]
        check_kind(entry, "biuf", path)
        if not entry.n_bytes:
            return np.empty(entry.shape)
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
        return array


@contextmanager
def open_npz(path: Path) -> Iterator[Arrays]:
    """Open an archive of ``.npy`` members; nothing is ever unpacked to disk."""
    with zipfile.ZipFile(path) as archive, np.load(path, allow_pickle=False) as members:
        entries = {}
        for info in archive.infolist():
            if not info.filename.endswith(".npy"):
                continue
            with archive.open(info) as stream:
                entry = _npy_entry(stream, info.file_size, path)
            entries[info.filename.removesuffix(".npy")] = entry

        def read(name: str) -> Array:
            check_unpacked_size(entries[name].n_bytes, path)
            array: Array = members[f"{name}.npy"]
            return array

        yield Arrays(entries, read)


@contextmanager
def open_mat(path: Path) -> Iterator[Arrays]:
    """Open a MATLAB file; all but full arrays of real numbers are ``object``."""
    from scipy.io import loadmat

    entries = _mat_entries(path)

    def read(name: str) -> Array:
        check_unpacked_size(entries[name].n_bytes, path)
        array: Array = loadmat(path, variable_names=[name], appendmat=False)[name]
        return array

    yield Arrays(entries, read)


def _mat_entries(path: Path) -> dict[str, Entry]:
    """Return what a MATLAB file holds, by the first bytes of each array.

    SciPy says as much, but takes the types of the values on trust, and the process
    ends where one of them is damaged.
    """
    entries: dict[str, Entry] = {}
    with path.open("rb") as stream:
        start = stream.read(_MAT_HEADER_BYTES)
        order = {b"IM": "<", b"MI": ">"}.get(start[126:])
        # A zero among the first four bytes stands for version 4.
        if order is None or 0 in start[:4] or start.startswith(b"MATLAB 7.3"):
            raise DataError(
                f"{path} must be a MATLAB file of version 5 to 7, but is none, or one "
                "of version 7.3 (HDF5). Save it with '-v7', or as .npy."
            )
        while tag := stream.read(8):
            kind, n_bytes = struct.unpack(f"{order}II", tag)
            after = stream.tell() + n_bytes
            head = stream.read(min(n_bytes, 1024))
            is_packed = kind == _MAT_COMPRESSED
            if is_packed:
                head = zlib.decompressobj().decompress(head, 1024)[8:]
            name, entry = _mat_entry(head, order, None if is_packed else n_bytes)
            if name in entries:
                raise ValueError(f"it holds {name!r} twice")
            entries[name] = entry
            stream.seek(after)
    # MATLAB keeps the data behind objects in an array without a name.
    entries.pop("", None)
    return entries


def _mat_entry(head: bytes, order: str, n_bytes: int | None) -> tuple[str, Entry]:
    """Return name, shape and type of an array that begins with these bytes.

    ``n_bytes`` is its size in the file, None if it is packed.
    """
    position, parts = 0, []
    for _ in ("flags", "shape", "name"):
        kind, start, size = _mat_tag(head, position, order)
        parts.append(head[start : start + size])
        # What stands inside its tag ends with it; the rest fills words of 8 bytes.
        position += 8 if start < position + 8 else 8 + -(-size // 8) * 8
        if start + size > len(head):
            raise ValueError("an array has no end")
    flags, dims, name = parts
    shape = struct.unpack(f"{order}{len(dims) // 4}i", dims)
    word = struct.unpack_from(f"{order}I", flags)[0]
    if word & 0xFF not in _MAT_NUMBERS or word & _MAT_COMPLEX:
        return name.decode("latin1"), Entry(shape, np.dtype(object))
    kind, start, size = _mat_tag(head, position, order)
    if kind not in _MAT_TYPES:
        raise ValueError("an array has values of no known type")
    entry = Entry(shape, np.dtype(order + _MAT_TYPES[kind]))
    if size != entry.n_bytes or (n_bytes is not None and start + size > n_bytes):
        raise ValueError(f"an array of shape {shape} has {size} bytes of values")
    return name.decode("latin1"), entry


def _mat_tag(head: bytes, position: int, order: str) -> tuple[int, int, int]:
    """Return the type of a part of an array, where it starts, and its bytes."""
    kind, size = struct.unpack_from(f"{order}II", head, position)
    if kind > 0xFFFF:  # up to four bytes stand inside the tag itself
        return kind & 0xFFFF, position + 4, kind >> 16
    return kind, position + 8, size


@contextmanager
def open_safetensors(path: Path) -> Iterator[Arrays]:
    """Open a file of named tensors; bfloat16, which NumPy lacks, is read as float32."""
    from safetensors import safe_open

    # Torch maps the whole file as memory of its own, of which there may be too little.
    with safe_open(path, framework="numpy") as tensors:
        entries = {}
        for name in tensors.keys():  # noqa: SIM118 - not a mapping
            part = tensors.get_slice(name)
            entries[name] = Entry(tuple(part.get_shape()), _dtype(part.get_dtype()))

        def read(name: str) -> Array:
            if tensors.get_slice(name).get_dtype() == "BF16":
                with safe_open(path, framework="pt") as torch_tensors:
                    bfloat16 = torch_tensors.get_tensor(name)
                array: Array = bfloat16.float().numpy()
            else:
                array = tensors.get_tensor(name)
            return array

        yield Arrays(entries, read)


def _dtype(name: str) -> np.dtype[Any]:
    """Return the type that safetensors calls so, ``object`` if NumPy has none."""
    if name in ("BF16", "BOOL"):
        return np.dtype({"BF16": np.float32, "BOOL": np.bool_}[name])
    found = re.fullmatch(r"([FIU])(8|16|32|64)", name)
    return np.dtype(f"{found[1].lower()}{int(found[2]) // 8}" if found else object)


def _write_npy(path: Path, _name: str, array: Array) -> None:
    np.save(path, array, allow_pickle=False)


def _write_npz(path: Path, name: str, array: Array) -> None:
    arrays: dict[str, Any] = {name: array}
    np.savez(path, **arrays)


def _write_mat(path: Path, name: str, array: Array) -> None:
    from scipy.io import savemat

    # Labels become a column, as MATLAB has no vectors.
    savemat(path, {name: array}, oned_as="column")


def _write_safetensors(path: Path, name: str, array: Array) -> None:
    from safetensors.numpy import save_file

    # The library writes the memory as it lies, whatever the strides.
    save_file({name: np.ascontiguousarray(array)}, path)


def _npy_entry(stream: IO[bytes], n_bytes: int, path: Path) -> Entry:
    """Read shape and type from the header of ``n_bytes`` of a ``.npy`` file."""
    stream = io.BytesIO(stream.read(_HEADER_BYTES))
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    try:
        version = np.lib.format.read_magic(stream)
        shape, _, dtype = readers[version](stream)
    except (ValueError, KeyError) as error:
        raise DataError(
            f"{path} must be a NumPy array file, but its header cannot be read. "
            "The file is damaged or of another kind: write it with numpy.save."
        ) from error
    entry = Entry(shape, dtype)
    available = n_bytes - stream.tell()
    if min(shape, default=0) < 0 or entry.n_bytes > available:
        raise DataError(
            f"{path} claims an array of shape {str(shape)[:80]}, {entry.n_bytes} "
            f"bytes, but holds {max(available, 0)}. The file is cut short or damaged: "
            "write or fetch it again."
        )
    return entry


def _array_format(
    open_arrays: Callable[[Path], AbstractContextManager[Arrays]],
    write: Callable[[Path, str, Array], None],
    *,
    writes_text: bool,
) -> Format:
    """Build the format of files that hold named arrays."""

    def read_rows(path: Path, name: str | None) -> Array:
        with open_arrays(path) as arrays:
            name = choose_rows(arrays.entries, name, path)
            check_kind(arrays.entries[name], "biuf", path)
            return arrays.read(name)

    def read_labels(path: Path, name: str | None) -> Array:
        with open_arrays(path) as arrays:
            name = _choose_labels(arrays.entries, name, path)
            check_kind(arrays.entries[name], "biufUS", path)
            return arrays.read(name)

    def write_rows(path: Path, array: Array) -> None:
        write(path, "X", array)

    def write_labels(path: Path, labels: Array) -> None:
        if labels.dtype.kind == "U" and not writes_text:
            raise DataError(
                f"Labels in a {path.suffix} file must be numbers, got text. "
                "Write text labels as .npy or .csv."
            )
        write(path, "labels", labels)

    return Format(read_rows, read_labels, write_rows, write_labels)


NPY = _array_format(open_npy, _write_npy, writes_text=True)
NPZ = _array_format(open_npz, _write_npz, writes_text=True)
MAT = _array_format(open_mat, _write_mat, writes_text=False)
SAFETENSORS = _array_format(open_safetensors, _write_safetensors, writes_text=False)


def choose_rows(entries: Mapping[str, Entry], name: str | None, path: Path) -> str:
    """Return the name of the array that holds the rows."""
    if name is None and set(entries) >= _OF_SPARSE:
        raise DataError(
            f"{path} must hold a dense matrix, but holds a sparse one. Write its "
            "toarray() instead."
        )
    matrices = [
        key
        for key, entry in entries.items()
        if len(entry.shape) == 2 and min(entry.shape) > 1
    ]
    return _choose(entries, name, path, usual=ROW_NAMES, fitting=matrices)


def _choose_labels(entries: Mapping[str, Entry], name: str | None, path: Path) -> str:
    """Return the name of the array that holds one label a sample."""
    vectors = [
        key
        for key, entry in entries.items()
        if entry.n_values > 1 and max(entry.shape) == entry.n_values
    ]
    return _choose(entries, name, path, usual=LABEL_NAMES, fitting=vectors)


def _choose(
    entries: Mapping[str, Entry],
    name: str | None,
    path: Path,
    *,
    usual: Iterable[str],
    fitting: list[str],
) -> str:
    if name is not None:
        if name in entries:
            return name
        raise DataError(
            f"{path} must hold the array that was asked for, {name!r}, but holds "
            f"{listing(entries)}. Name one of these."
        )
    if len(entries) == 1:
        return next(iter(entries))
    called = [candidate for candidate in usual if candidate in entries]
    if called or len(fitting) == 1:
        return (called or fitting)[0]
    raise DataError(
        f"{path} must hold one array, or one under a usual name "
        f"({', '.join(usual)}), but holds {listing(entries)}. "
        "Name the one to read."
    )


def listing(names: Iterable[str]) -> str:
    """Return names from a file as short printable text."""
    shown = [repr(name[:40]) for name in names]
    more = f" and {len(shown) - 20} more" if len(shown) > 20 else ""
    return ", ".join(shown[:20]) + more if shown else "none"


def check_kind(entry: Entry, kinds: str, origin: Path | str) -> None:
    """Refuse an array whose type is not among ``kinds`` (NumPy's letters)."""
    given = entry.dtype
    # Wider floats exist on some machines only, and torch has none of them.
    is_too_wide = given.kind == "f" and given.itemsize > 8
    if given.kind not in kinds or given.itemsize == 0 or is_too_wide:
        wanted = "real numbers or text" if "U" in kinds else "real numbers"
        raise DataError(
            f"{origin} must hold {wanted}, got {str(given)[:60]}. Store the array "
            "with a plain type, such as float32; pickled objects are never read."
        )


def check_unpacked_size(n_bytes: int, path: Path) -> None:
    """Refuse packed data that would grow beyond any sensible multiple of its file."""
    limit = max(HARMLESS_BYTES, MAX_UNPACKED_RATIO * path.stat().st_size)
    if n_bytes > limit:
        raise DataError(
            f"{path} would grow to {n_bytes} bytes when unpacked, more than "
            f"{MAX_UNPACKED_RATIO} times its size. If that is meant, store it as an "
            "uncompressed .npy file."
        )
