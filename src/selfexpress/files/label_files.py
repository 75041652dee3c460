"""Labels written as they are found, to a file that appears whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet as pq

from selfexpress.errors import DataError
from selfexpress.files.arrays import write_labels
from selfexpress.files.atomic import replacing

Labels = NDArray[np.int64]
Append = Callable[[Labels], object]


@contextmanager
def label_writer(path: Path, n_labels: int) -> Iterator[Append]:
    """Yield a function that appends to a file of ``n_labels`` labels in all.

    Memory does not grow with the labels for ``.npy``, ``.csv`` and ``.parquet``; other
    suffixes are written in the end. The file takes its place when the block is left
    without an error.
    """
    n_written = 0
    with _WRITERS.get(path.suffix.lower(), _whole)(path, n_labels) as write:

        def append(labels: Labels) -> None:
            nonlocal n_written
            n_written += len(labels)
            write(labels)

        yield append
        if n_written != n_labels:
            raise DataError(
                f"{path} must hold a label for each of {n_labels} rows, but there are "
                f"{n_written}. The rows changed while they were read: run it again."
            )


@contextmanager
def _npy(path: Path, n_labels: int) -> Iterator[Append]:
    header = {"descr": "<i8", "fortran_order": False, "shape": (n_labels,)}
    with replacing(path) as target, target.open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, header)
        yield lambda labels: stream.write(labels.astype("<i8").tobytes())


@contextmanager
def _csv(path: Path, _n_labels: int) -> Iterator[Append]:
    with replacing(path) as target, target.open("w", encoding="ascii") as stream:
        stream.write("label\n")
        yield lambda labels: np.savetxt(stream, labels, fmt="%d")


@contextmanager
def _parquet(path: Path, _n_labels: int) -> Iterator[Append]:
    schema = pa.schema([("label", pa.int64())])
    with (
        replacing(path) as target,
        pq.ParquetWriter(target, schema, write_page_checksum=True) as writer,
    ):
        yield lambda labels: writer.write_table(pa.table({"label": labels}))


@contextmanager
def _whole(path: Path, _n_labels: int) -> Iterator[Append]:
    parts: list[Labels] = []
    yield parts.append
    write_labels(path, np.concatenate(parts))


_WRITERS = {".npy": _npy, ".csv": _csv, ".parquet": _parquet}
