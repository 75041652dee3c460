"""Rows to be clustered, read in blocks whatever they are stored in.

Shapes: N samples, D features, K rows of a block.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selfexpress.errors import DataError
from selfexpress.ops.self_expression import unit_rows

# Of tensors whose every number single precision holds.
_NARROW_TENSORS = {
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.float16,
    torch.bfloat16,
    torch.float32,
}


@dataclass(frozen=True)
class RowBlock:
    """Some rows of a source and where they stand in it.

    Attributes
    ----------
    rows : Tensor of shape (K, D)
    index : Tensor of shape (K,), int64
        Positions of the rows in their source.
    """

    rows: Tensor
    index: Tensor


@runtime_checkable
class RowSource(Protocol):
    """What the pipeline needs of data: its size, blocks in order, rows by position.

    ``blocks`` may be called any number of times and always starts at the first row:
    training walks the data twice a step. A source whose columns have names may give
    them as ``feature_names``; ``predict`` then refuses others than those of ``fit``.
    """

    @property
    def n_features(self) -> int:
        """Number of columns."""
        ...

    def __len__(self) -> int:
        """Number of rows."""
        ...

    def blocks(self, block_size: int) -> Iterator[RowBlock]:
        """Yield all rows in order, ``block_size`` at a time; the last may be short."""
        ...

    def take(self, index: Tensor) -> Tensor:
        """Return the rows at the given positions, in that order."""
        ...


class Rows:
    """Base of our own sources: their size, and blocks by way of ``blocks_between``.

    Attributes
    ----------
    n_features : int
    feature_names : tuple of str or None
        Names of the columns, if they have any.
    """

    def __init__(
        self, n_rows: int, n_features: int, feature_names: Sequence[str] | None = None
    ) -> None:
        self._n_rows = int(n_rows)
        self.n_features = int(n_features)
        self.feature_names = None if feature_names is None else tuple(feature_names)

    def __len__(self) -> int:
        return self._n_rows

    def blocks(self, block_size: int) -> Iterator[RowBlock]:
        """Yield all rows in order, ``block_size`` at a time; the last may be short."""
        return self.blocks_between(0, len(self), block_size=block_size)

    def blocks_between(
        self, start: int, stop: int, *, block_size: int
    ) -> Iterator[RowBlock]:
        """Yield the rows from ``start`` up to ``stop``, as :meth:`blocks` does."""
        raise NotImplementedError


class ArraySource(Rows):
    """Rows of a tensor, a NumPy array or a ``np.memmap``.

    A memory-mapped array stays on disk: only the rows of the block at hand are read.

    Parameters
    ----------
    array : Tensor or ndarray of shape (N, D)
    dtype : torch.dtype
        Type of the rows handed out.
    device : torch.device or str
        Where the rows are handed out. A tensor that is there already is not copied.
    feature_names : sequence of str, optional
        Names of the columns, if they have any.
    """

    def __init__(
        self,
        array: Tensor | NDArray[np.generic],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        feature_names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(array.shape[0], array.shape[1], feature_names)
        self._array = array
        self._dtype = dtype
        self._device = torch.device(device)

    def blocks_between(
        self, start: int, stop: int, *, block_size: int
    ) -> Iterator[RowBlock]:
        """Yield the rows from ``start`` up to ``stop``, as :meth:`blocks` does."""
        for first in range(start, stop, block_size):
            last = min(first + block_size, stop)
            index = torch.arange(first, last, device=self._device)
            yield RowBlock(self._convert(self._array[first:last]), index)

    def take(self, index: Tensor) -> Tensor:
        """Return the rows at the given positions, in that order."""
        if isinstance(self._array, Tensor):
            return self._convert(self._array[index.to(self._array.device)])
        return self._convert(self._array[index.cpu().numpy()])

    def _convert(self, rows: Tensor | NDArray[np.generic]) -> Tensor:
        if not isinstance(rows, Tensor):
            # A copy: torch refuses to share read-only memory without a warning, and
            # has no numbers with the bytes in another order.
            rows = torch.from_numpy(np.array(rows, dtype=rows.dtype.newbyteorder("=")))
            _release_pages(self._array)
        return rows.to(device=self._device, dtype=self._dtype)


class MappedSource(Rows):
    """Rows of a source, each block mapped when it is asked for.

    Nothing is kept: walking the rows twice computes them twice.

    Parameters
    ----------
    source : RowSource
    function : callable
        Maps rows (K, D) to rows (K, ``n_features``), on any device.
    n_features : int, optional
        Given if they are others than the source's, whose names they keep if not.
    """

    def __init__(
        self,
        source: RowSource,
        function: Callable[[Tensor], Tensor],
        n_features: int | None = None,
    ) -> None:
        names = names_of(source) if n_features is None else None
        super().__init__(len(source), n_features or source.n_features, names)
        self._source = source
        self._function = function

    def blocks_between(
        self, start: int, stop: int, *, block_size: int
    ) -> Iterator[RowBlock]:
        """Yield the rows from ``start`` up to ``stop``, as :meth:`blocks` does."""
        found = blocks_between(self._source, start, stop, block_size=block_size)
        return map(self._mapped, found)

    def take(self, index: Tensor) -> Tensor:
        """Return the rows at the given positions, in that order."""
        return self._function(self._source.take(index))

    def _mapped(self, block: RowBlock) -> RowBlock:
        rows = self._function(block.rows)
        return RowBlock(rows, block.index.to(rows.device))


class UnitRows(MappedSource):
    """The rows of another source, each scaled to unit l2 norm.

    They are scaled in double precision, so that the same numbers give the same rows in
    whatever type they come, and rows too large or too small for float32 keep their
    direction.

    Parameters
    ----------
    source : RowSource
    dtype : torch.dtype
        Type of the rows handed out.
    """

    def __init__(
        self, source: RowSource, *, dtype: torch.dtype = torch.float32
    ) -> None:
        def scaled(rows: Tensor) -> Tensor:
            return unit_rows(rows.double()).to(dtype)

        super().__init__(source, scaled)


class CheckedRows(MappedSource):
    """The rows of a source that is not ours, moved to a device, if one is given.

    A row with NaN or infinity is a :class:`DataError` when it is read.
    """

    def __init__(
        self, source: RowSource, *, device: torch.device | None = None
    ) -> None:
        super().__init__(source, lambda rows: _real(rows.to(device)))

    def take(self, index: Tensor) -> Tensor:
        """Return the rows at the given positions, in that order."""
        rows = super().take(index)
        _require_finite(rows, index)
        return rows

    def _mapped(self, block: RowBlock) -> RowBlock:
        mapped = super()._mapped(block)
        _require_finite(mapped.rows, mapped.index)
        return mapped


def row_dtype(array: Tensor | NDArray[np.generic]) -> torch.dtype:
    """Return the type to scale rows in: single precision if it holds them exactly."""
    if isinstance(array, Tensor):
        is_narrow = array.dtype in _NARROW_TENSORS
    else:
        is_narrow = is_exact_in_single(array.dtype)
    return torch.float32 if is_narrow else torch.float64


def is_exact_in_single(dtype: np.dtype[Any]) -> bool:
    """Return whether single precision holds every number of a type, or of integers."""
    return bool(np.can_cast(dtype, np.float32))


def columns_of(source: RowSource) -> Any:
    """Return what has the columns of a source, by name if it has any, for checks."""
    names = names_of(source)
    if names is None:
        # Of that shape, but without memory.
        return np.broadcast_to(np.float32(0), (len(source), source.n_features))
    import pyarrow as pa

    empty = [pa.array([], pa.float32())] * len(names)
    return pa.Table.from_arrays(empty, names=list(names))


def names_of(source: RowSource) -> tuple[str, ...] | None:
    """Return the names of a source's columns, if it has any."""
    names: tuple[str, ...] | None = getattr(source, "feature_names", None)
    return names


def blocks_between(
    source: RowSource, start: int, stop: int, *, block_size: int
) -> Iterator[RowBlock]:
    """Yield the rows of a source from ``start`` up to ``stop``, in order.

    A source with a method of this name reads nothing else; any other is asked for the
    rows by position. ``index`` counts from the first row of the source.
    """
    if (start, stop) == (0, len(source)):
        return source.blocks(block_size)
    if (find := getattr(source, "blocks_between", None)) is not None:
        found: Iterator[RowBlock] = find(start, stop, block_size=block_size)
        return found
    starts = range(start, stop, block_size)
    spans = (torch.arange(n, min(n + block_size, stop)) for n in starts)
    return (RowBlock(source.take(span), span) for span in spans)


def _release_pages(array: Tensor | NDArray[np.generic]) -> None:
    """Drop the pages of a mapped file that were read, or they pile up in memory.

    Only where they cannot have been changed. The system still has them at hand.
    """
    if isinstance(array, np.memmap) and array.mode == "r":
        mapping = getattr(array, "_mmap", None)
        if isinstance(mapping, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            mapping.madvise(mmap.MADV_DONTNEED)


def _real(rows: Tensor) -> Tensor:
    return rows if rows.is_floating_point() else rows.float()


def _require_finite(rows: Tensor, index: Tensor) -> None:
    is_finite = torch.isfinite(rows).all(dim=1)
    if not is_finite.all():
        first = int(index[int(is_finite.long().argmin())])
        raise DataError(
            f"The rows of a source must be finite, but row {first}, counted from 0, "
            "contains NaN or infinity. Clean it."
        )
