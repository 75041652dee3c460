"""Rows named on the command line: a file, or a data set by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selfexpress.data.datasets import Dataset, available, load
from selfexpress.data.files import FORMATS, read_array
from selfexpress.errors import DataError


def read_rows(data: str, *, name: str | None = None) -> NDArray[Any]:
    """Return the rows of a file or data set, (N, D); images are flattened.

    A ``.npy`` file stays on disk and is read as it is needed.
    """
    if Path(data).suffix.lower() in FORMATS:
        array = read_array(data, name=name, mmap=True)
        return array if array.ndim == 2 else array.reshape(len(array), -1)
    return read_dataset(data).rows.astype(np.float32)


def read_dataset(name: str) -> Dataset:
    """Return a data set that is a single clustering problem."""
    known = [spec.name for spec in available()]
    if name.partition("/")[0] not in known:
        raise DataError(
            f"DATA must be a file ending in {', '.join(FORMATS)}, or one of "
            f"{', '.join(known)}, got {name!r}. Check the spelling."
        )
    dataset = load(name)
    if not isinstance(dataset, Dataset):
        raise DataError(
            f"{name} holds {len(dataset)} problems that are clustered one by one. "
            f"Name one of them, such as {name}/{next(iter(dataset.sequences))}."
        )
    return dataset
