"""Rows that stay in their files: one way in for every format and for folders."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from selfexpress.errors import DataError, DegenerateWarning
from selfexpress.files.arrays import FORMATS, read_array, reading
from selfexpress.files.named_arrays import (
    Array,
    check_kind,
    choose_rows,
    listing,
    open_safetensors,
)
from selfexpress.files.tables import column_names
from selfexpress.rows.parquet_rows import ParquetRows
from selfexpress.rows.shards import Shards
from selfexpress.rows.sources import (
    ArraySource,
    MappedSource,
    RowSource,
    names_of,
    row_dtype,
)

# Not "y", which may be a coordinate.
_CLASS_NAMES = {"label", "labels", "class", "target", "truth", "gnd"}
_ROW_NAMES = {"id", "index", "idx", "row", "row_id", "level_0", "unnamed: 0"}


def open_rows(path: str | os.PathLike[str], *, name: str | None = None) -> RowSource:
    """Open rows without reading them, where the format allows it.

    Parameters
    ----------
    path : path
        ``.npy``, ``.parquet`` and ``.safetensors`` files stay on disk, however large;
        others are read. The files of a folder are
        shards of one whole, in the order of their names; hidden files and those of
        other suffixes are passed over, folders refused.
    name : str, optional
        Array or column that holds the rows; see
        :func:`~selfexpress.files.arrays.read_array`.

    Returns
    -------
    RowSource
        Rows in float32 where that holds them exactly, else in float64.

    Raises
    ------
    DataError
        If the rows cannot be used.
    """
    path = Path(path)
    if path.is_dir():
        files = shard_files(path)
        shards = [_open_file(shard, name) for shard in files]
        rows: RowSource = Shards(shards, labels=[shard.name for shard in files])
    else:
        rows = _open_file(path, name)
    _warn_of_suspects(names_of(rows) or (), path)
    return rows


def _warn_of_suspects(names: Sequence[str], path: Path) -> None:
    """Warn if a column is called as those are that no fit should see."""
    usual = {"the true classes": _CLASS_NAMES, "the numbers of rows": _ROW_NAMES}
    for what, names_of_it in usual.items():
        suspect = [name for name in names if name.lower() in names_of_it]
        if suspect:
            warnings.warn(
                f"Columns of {path} should be features, but {listing(suspect)} is "
                f"called as {what} often are, and is taken for one. Leave it out if it "
                "holds them.",
                DegenerateWarning,
                stacklevel=3,
            )


def shard_files(folder: Path) -> list[Path]:
    """Return the files of a folder that hold rows, by name; at least one.

    Rows in folders of the folder would be left out in silence, so that there must not
    be any.
    """
    seen = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    shards = [path for path in seen if path.suffix.lower() in FORMATS]
    inner = [path for path in seen if path.is_dir() and _holds_rows(path)]
    if inner:
        raise DataError(
            f"The folder {folder} must hold its shards side by side, but has some in "
            f"{inner[0].name}. Move them, or name that folder."
        )
    if not shards:
        raise DataError(
            f"The folder {folder} must hold files ending in {', '.join(FORMATS)}, but "
            "holds none. Check the path."
        )
    return shards


def _holds_rows(folder: Path) -> bool:
    return any(path.suffix.lower() in FORMATS for path in folder.rglob("*"))


def _open_file(path: Path, name: str | None) -> RowSource:
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        with reading(path):
            return ParquetRows(path, name=name)
    if suffix == ".safetensors":
        with reading(path):
            return _open_safetensors(path, name)
    array = read_array(path, name=name, mmap=True)
    _require_rows(array.shape, path)
    is_table = suffix in (".csv", ".feather") and name is None
    return as_source(array, column_names(path) if is_table else None)


def as_source(array: Array, feature_names: Sequence[str] | None = None) -> ArraySource:
    """Return an array as rows, float32 where that holds it exactly, else float64."""
    rows = array.reshape(len(array), -1)
    return ArraySource(rows, dtype=row_dtype(array), feature_names=feature_names)


def _open_safetensors(path: Path, name: str | None) -> RowSource:
    """Return the rows of a tensor of the file, which is mapped into memory."""
    with open_safetensors(path) as arrays:
        chosen = choose_rows(arrays.entries, name, path)
        entry = arrays.entries[chosen]
    check_kind(entry, "biuf", path)
    _require_rows(entry.shape, path)
    # Read-only, unlike what the library maps, which must not exceed the memory. It has
    # checked that the header fits the file.
    with path.open("rb") as stream:
        header_bytes = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(header_bytes))[chosen]
    is_bfloat16 = header["dtype"] == "BF16"
    array: Array = np.memmap(
        path,
        dtype=np.int16 if is_bfloat16 else entry.dtype,
        mode="r",
        offset=8 + header_bytes + header["data_offsets"][0],
        shape=entry.shape,
    )
    if not is_bfloat16:
        return as_source(array)
    bits = ArraySource(array.reshape(len(array), -1), dtype=torch.int16)
    return MappedSource(bits, lambda rows: rows.view(torch.bfloat16).float())


def _require_rows(shape: tuple[int, ...], path: Path) -> None:
    if len(shape) < 2 or 0 in shape:
        raise DataError(
            f"{path} must have shape (n_samples, n_features), both at least 1, got "
            f"{shape}. Reshape it, or choose another array."
        )
