"""Rows named on the command line: a file, a folder, or a data set by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selfexpress.datasets.loading import Dataset, available, load_dataset
from selfexpress.errors import DataError
from selfexpress.files.arrays import FORMATS, read_array
from selfexpress.rows.opening import as_source, open_rows
from selfexpress.rows.sources import ArraySource, RowSource, names_of

# Files up to here are simply read.
_SMALL_BYTES = 256 * 2**20


def read_rows(data: str, *, name: str | None = None) -> NDArray[Any] | RowSource:
    """Return the rows of a file, folder or data set, (N, D); images are flattened.

    A large ``.npy``, ``.parquet`` or ``.safetensors`` file and a folder of shards stay
    on disk and are read as they are needed. Columns with names are a source that tells
    them.
    """
    path = Path(data)
    if path.is_dir():
        return open_rows(path, name=name)
    if path.suffix.lower() not in FORMATS:
        return read_dataset(data).rows.astype(np.float32)
    is_large = path.is_file() and path.stat().st_size > _SMALL_BYTES
    is_table = path.suffix.lower() in (".csv", ".parquet")
    if is_large or is_table:
        rows = open_rows(path, name=name)
        return rows if is_large else _in_memory(rows)
    array = read_array(path, name=name)
    return array if array.ndim == 2 else array.reshape(len(array), -1)


def _in_memory(rows: RowSource) -> RowSource:
    """Return rows that are decoded once, and not whenever they are walked."""
    if isinstance(rows, ArraySource):
        return rows
    blocks = [block.rows.numpy() for block in rows.blocks(8192)]
    return as_source(np.concatenate(blocks), names_of(rows))


def read_dataset(name: str) -> Dataset:
    """Return a data set that is a single clustering problem."""
    known = [spec.name for spec in available()]
    if name.partition("/")[0] not in known:
        raise DataError(
            f"DATA must be a file ending in {', '.join(FORMATS)}, a folder of such "
            f"files, or one of {', '.join(known)}, got {name!r}. Check the spelling."
        )
    dataset = load_dataset(name)
    if not isinstance(dataset, Dataset):
        raise DataError(
            f"{name} holds {len(dataset)} problems that are clustered one by one. "
            f"Name one of them, such as {name}/{next(iter(dataset.sequences))}."
        )
    return dataset
