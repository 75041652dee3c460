"""Rows to be clustered, read in blocks whatever they are stored in.

Shapes: N samples, D features, K rows of a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selfexpress.errors import DataError
from selfexpress.ops.self_expression import unit_rows


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
    """What the pipeline asks of data: its size, blocks in order, rows by position.

    ``blocks`` may be called any number of times and always starts at the first row:
    training walks the data twice a step.
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


class ArraySource:
    """Rows of a tensor, a NumPy array or a ``np.memmap``.

    A memory-mapped array stays on disk: only the rows of the block at hand are read.

    Parameters
    ----------
    array : Tensor or ndarray of shape (N, D)
    dtype : torch.dtype
        Type of the rows handed out.
    device : torch.device or str
        Where the rows are handed out. A tensor that is there already is not copied.
    """

    def __init__(
        self,
        array: Tensor | NDArray[np.generic],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self._array = array
        self._dtype = dtype
        self._device = torch.device(device)

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self._array.shape[1])

    def __len__(self) -> int:
        """Number of rows."""
        return int(self._array.shape[0])

    def blocks(self, block_size: int) -> Iterator[RowBlock]:
        """Yield all rows in order, ``block_size`` at a time; the last may be short."""
        for start in range(0, len(self), block_size):
            stop = min(start + block_size, len(self))
            index = torch.arange(start, stop, device=self._device)
            yield RowBlock(self._convert(self._array[start:stop]), index)

    def take(self, index: Tensor) -> Tensor:
        """Return the rows at the given positions, in that order."""
        if isinstance(self._array, Tensor):
            return self._convert(self._array[index.to(self._array.device)])
        return self._convert(self._array[index.cpu().numpy()])

    def _convert(self, rows: Tensor | NDArray[np.generic]) -> Tensor:
        if not isinstance(rows, Tensor):
            # A copy: torch refuses to share read-only memory without a warning.
            rows = torch.from_numpy(np.array(rows))
        return rows.to(device=self._device, dtype=self._dtype)


class UnitRows:
    """The rows of another source, each scaled to unit l2 norm as it is read.

    Scaling comes before the conversion to ``dtype``, so that rows too large or too
    small for it keep their direction.
    """

    def __init__(
        self, source: RowSource, *, dtype: torch.dtype = torch.float32
    ) -> None:
        self._source = source
        self._dtype = dtype

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self._source.n_features

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._source)

    def blocks(self, block_size: int) -> Iterator[RowBlock]:
        """Yield all rows in order, ``block_size`` at a time; the last may be short."""
        for block in self._source.blocks(block_size):
            yield RowBlock(unit_rows(block.rows).to(self._dtype), block.index)

    def take(self, index: Tensor) -> Tensor:
        """Return the rows at the given positions, in that order."""
        return unit_rows(self._source.take(index)).to(self._dtype)


class CheckedRows:
    """The rows of a source that is not ours: moved to a device, refused if not finite.

    Raises
    ------
    DataError
        When a block is read that holds NaN or infinity.
    """

    def __init__(self, source: RowSource, *, device: torch.device) -> None:
        self._source = source
        self._device = device

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self._source.n_features

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._source)

    def blocks(self, block_size: int) -> Iterator[RowBlock]:
        """Yield all rows in order, ``block_size`` at a time; the last may be short."""
        for block in self._source.blocks(block_size):
            yield RowBlock(self._check(block.rows), block.index.to(self._device))

    def take(self, index: Tensor) -> Tensor:
        """Return the rows at the given positions, in that order."""
        return self._check(self._source.take(index))

    def _check(self, rows: Tensor) -> Tensor:
        rows = rows.to(self._device)
        if not rows.is_floating_point():
            rows = rows.float()
        if not torch.isfinite(rows).all():
            raise DataError(
                "The rows of a source must be finite, but a block contains NaN or "
                "infinity. Clean them."
            )
        return rows
