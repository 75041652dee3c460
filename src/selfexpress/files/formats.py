"""What every file format shares: named arrays, the choice among them, size limits.

A reader learns the shape and type of an array, has them checked here, and only then
makes room for it, so that a damaged or hostile header costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True)
class Format:
    """How files of one suffix are read and written.

    Readers take the path and the name of the array or column, None for the only or
    conventional one; writers take the path and the array.
    """

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
class Container:
    """An open file of named arrays: what it holds, and a function that reads one."""

    entries: Mapping[str, Entry]
    read: Callable[[str], Array]


def container_format(
    open_container: Callable[[Path], AbstractContextManager[Container]],
    write: Callable[[Path, str, Array], None],
    *,
    writes_text: bool,
) -> Format:
    """Build the format of files that hold named arrays."""

    def read_rows(path: Path, name: str | None) -> Array:
        with open_container(path) as container:
            name = choose_rows(container.entries, name, path)
            check_kind(container.entries[name], "biuf", path)
            return container.read(name)

    def read_labels(path: Path, name: str | None) -> Array:
        with open_container(path) as container:
            name = choose_labels(container.entries, name, path)
            check_kind(container.entries[name], "biufUS", path)
            return container.read(name)

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


# What scipy.sparse.save_npz writes of every matrix.
_OF_SPARSE = {"format", "shape", "data"}


def choose_rows(entries: Mapping[str, Entry], name: str | None, path: Path) -> str:
    """Return the name of the array that holds the rows."""
    if name is None and set(entries) >= _OF_SPARSE:
        raise DataError(
            f"{path} must hold a dense matrix, but holds a sparse one. Write its "
            "toarray() instead."
        )

    def fits(entry: Entry) -> bool:
        return len(entry.shape) == 2 and min(entry.shape) > 1

    return _choose(entries, name, path, conventional=ROW_NAMES, fits=fits)


def choose_labels(entries: Mapping[str, Entry], name: str | None, path: Path) -> str:
    """Return the name of the array that holds one label a sample."""

    def fits(entry: Entry) -> bool:
        return entry.n_values > 1 and max(entry.shape) == entry.n_values

    return _choose(entries, name, path, conventional=LABEL_NAMES, fits=fits)


def _choose(
    entries: Mapping[str, Entry],
    name: str | None,
    path: Path,
    *,
    conventional: Iterable[str],
    fits: Callable[[Entry], bool],
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
    usual = [candidate for candidate in conventional if candidate in entries]
    fitting = usual or [key for key, entry in entries.items() if fits(entry)]
    if usual or len(fitting) == 1:
        return fitting[0]
    raise DataError(
        f"{path} must hold one array, or one under a usual name "
        f"({', '.join(conventional)}), but holds {listing(entries)}. "
        "Name the one to read."
    )


def listing(names: Iterable[str]) -> str:
    """Return names from a file as short printable text."""
    shown = [repr(name[:40]) for name in names]
    if not shown:
        return "none"
    more = f" and {len(shown) - 20} more" if len(shown) > 20 else ""
    return ", ".join(shown[:20]) + more


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


def check_stored_size(entry: Entry, available: int, path: Path) -> None:
    """Refuse an array that claims more bytes than its file holds."""
    if min(entry.shape, default=0) < 0 or entry.n_bytes > available:
        raise DataError(
            f"{path} claims an array of shape {_shape_text(entry.shape)}, "
            f"{entry.n_bytes} bytes, but holds {max(available, 0)}. The file is cut "
            "short or damaged: write or fetch it again."
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


def _shape_text(shape: tuple[int, ...]) -> str:
    text = str(shape)
    return text if len(text) <= 80 else text[:77] + "..."
