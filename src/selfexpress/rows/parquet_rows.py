"""Rows of a Parquet file, decoded a few at a time.

Shapes: N samples, D features, K rows of a block.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selfexpress.errors import DataError, SelfExpressError, one_line
from selfexpress.files.named_arrays import Array
from selfexpress.files.tables import (
    check_table,
    is_list,
    open_parquet,
    row_columns,
    table_rows,
)
from selfexpress.rows.shards import regroup
from selfexpress.rows.sources import RowBlock, Rows, is_exact_in_single

if TYPE_CHECKING:
    import pyarrow as pa

# Values decoded at a time: 2^21 float32 numbers are 8 MiB.
_PIECE_VALUES = 2**21


class ParquetRows(Rows):
    """Rows of a Parquet file that stays on disk.

    The file may hold columns of numbers or one column of lists, fixed-size or not.
    Walking it decodes some thousand rows at a time; ``take`` decodes only the row
    groups that hold a row asked for. Rows are float32 where that holds them exactly,
    else float64. Damage inside shows when the rows are read.
    """

    def __init__(self, path: Path, *, name: str | None = None) -> None:
        self._path = path
        with open_parquet(path) as file:
            schema = file.schema_arrow
            self._names = row_columns(schema, name, path)
            groups = [
                file.metadata.row_group(number).num_rows
                for number in range(file.num_row_groups)
            ]
        # Row group g holds the rows from starts[g] up to starts[g + 1].
        self._starts: list[int] = [0, *accumulate(groups)]
        if self._starts[-1] == 0:
            raise DataError(f"{path} must hold at least one row, but is empty.")
        is_table = not is_list(schema.field(self._names[0]).type)
        names = self._names if is_table and name is None else None
        super().__init__(self._starts[-1], len(self._names) if is_table else 0, names)
        if not is_table:
            self.n_features = next(self._pieces(0, 1)).shape[1]

    def blocks_between(
        self, start: int, stop: int, *, block_size: int
    ) -> Iterator[RowBlock]:
        """Yield the rows from ``start`` up to ``stop``, as :meth:`blocks` does."""
        pieces = map(torch.from_numpy, self._pieces(start, stop))
        return regroup(pieces, start=start, block_size=block_size)

    def take(self, index: Tensor) -> Tensor:
        """Return the rows at the given positions, in that order."""
        wanted, place = np.unique(index.cpu().numpy(), return_inverse=True)
        found = [
            piece[wanted[first:last] - offset]
            for first, last, offset, piece in self._needed(wanted)
        ]
        if not found:
            return torch.empty(0, self.n_features)
        return torch.from_numpy(np.concatenate(found)[place])

    def _needed(
        self, wanted: NDArray[np.int64]
    ) -> Iterator[tuple[int, int, int, Array]]:
        """Yield decoded pieces with the stretch of the sorted positions they hold."""
        bounds = np.searchsorted(wanted, self._starts)  # stretch of each row group
        for number in np.flatnonzero(np.diff(bounds)):
            offset = self._starts[number]
            last_wanted = int(wanted[bounds[number + 1] - 1])
            for piece in self._pieces(offset, last_wanted + 1):
                first, last = np.searchsorted(wanted, [offset, offset + len(piece)])
                if last > first:
                    yield int(first), int(last), offset, piece
                offset += len(piece)

    def _pieces(self, start: int, stop: int) -> Iterator[Array]:
        """Yield the rows from ``start`` up to ``stop`` in pieces of any length."""
        first_group = bisect_right(self._starts, start) - 1
        last_group = bisect_right(self._starts, stop - 1)
        position = self._starts[first_group]
        with open_parquet(self._path, n_columns=len(self._names)) as file:
            batches = file.iter_batches(
                batch_size=max(1, _PIECE_VALUES // max(self.n_features, 128)),
                row_groups=range(first_group, last_group),
                columns=self._names,
            )
            while position < stop:
                rows = self._next_rows(batches)
                first, last = max(start - position, 0), stop - position
                position += len(rows)
                if len(rows[first:last]):
                    yield rows[first:last]

    def _next_rows(self, batches: Iterator[pa.RecordBatch]) -> Array:
        try:
            return self._decoded(next(batches))
        except SelfExpressError:
            raise
        # Damage shows as any exception at all inside the decoder.
        except Exception as error:
            raise DataError(
                f"{self._path} must be a whole .parquet file, but cannot be read "
                f"({one_line(error)}). Write or fetch it again."
            ) from error

    def _decoded(self, batch: pa.RecordBatch) -> Array:
        import pyarrow as pa

        table = pa.Table.from_batches([batch])
        check_table(table, self._names, self._path)
        rows = table_rows(table, self._path)
        width = self.n_features or rows.shape[1]
        if rows.shape[1] != width or width == 0:
            raise DataError(
                f"{self._path} must hold lists of equal length of at least 1, but has "
                f"some of {width} and some of {rows.shape[1]} values. Complete or "
                "remove them."
            )
        dtype = np.float32 if is_exact_in_single(rows.dtype) else np.float64
        # A copy where the memory belongs to the decoder, which torch must not write to.
        return rows.astype(dtype, copy=not rows.flags.writeable)
