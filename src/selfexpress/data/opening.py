"""Rows that stay in their files: one way in for every format and for folders."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import torch

from selfexpress.data.files import FORMATS, read_array, reading
from selfexpress.data.formats.arrays import Array, check_kind, choose_rows
from selfexpress.data.formats.safetensors_files import open_safetensors
from selfexpress.data.parquet_rows import ParquetRows
from selfexpress.data.shards import Shards
from selfexpress.data.sources import ArraySource, RowSource
from selfexpress.errors import DataError


def open_rows(path: str | os.PathLike[str], *, name: str | None = None) -> RowSource:
    """Open rows without reading them, where the format allows it.

    Parameters
    ----------
    path : path
        ``.npy``, ``.parquet`` and ``.safetensors`` files stay on disk, however large;
        ``.npz``, ``.csv`` and ``.mat`` files are read. The files of a folder are
        shards of one whole, in the order of their names; hidden files and those of
        other suffixes are passed over.
    name : str, optional
        Array or column that holds the rows; see
        :func:`~selfexpress.data.files.read_array`.

    Returns
    -------
    RowSource
        Rows in float64 where they are stored so, else in float32.

    Raises
    ------
    DataError
        If the rows cannot be used.
    """
    path = Path(path)
    if path.is_dir():
        return Shards([_open_file(shard, name) for shard in shard_files(path)])
    return _open_file(path, name)


def shard_files(folder: Path) -> list[Path]:
    """Return the files of a folder that hold rows, by name; at least one."""
    shards = [
        path
        for path in sorted(folder.iterdir())
        if path.suffix.lower() in FORMATS and not path.name.startswith(".")
    ]
    if not shards:
        raise DataError(
            f"The folder {folder} must hold files ending in {', '.join(FORMATS)}, but "
            "holds none. Check the path."
        )
    return shards


def _open_file(path: Path, name: str | None) -> RowSource:
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        with reading(path):
            return ParquetRows(path, name=name)
    if suffix == ".safetensors":
        with reading(path):
            array = _map_safetensors(path, name)
    else:
        array = read_array(path, name=name, mmap=True)
    if array.ndim < 2 or array.size == 0:
        raise DataError(
            f"{path} must have shape (n_samples, n_features), both at least 1, got "
            f"{array.shape}. Reshape it, or choose another array."
        )
    is_double = array.dtype == np.float64
    return ArraySource(
        array.reshape(len(array), -1),
        dtype=torch.float64 if is_double else torch.float32,
    )


def _map_safetensors(path: Path, name: str | None) -> Array:
    """Return a tensor of the file without reading it, as a ``np.memmap``."""
    # Opening it with the library checks that the header fits the file.
    with open_safetensors(path) as container:
        chosen = choose_rows(container.entries, name, path)
        entry = container.entries[chosen]
    check_kind(entry, "biuf", path)
    if not entry.n_bytes:
        return np.empty(entry.shape)
    with path.open("rb") as stream:
        header_bytes = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(header_bytes))
    offset = 8 + header_bytes + header[chosen]["data_offsets"][0]
    array: Array = np.memmap(
        path, dtype=entry.dtype, mode="r", offset=offset, shape=entry.shape
    )
    return array
