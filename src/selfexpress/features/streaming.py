"""Features computed while they are read, for data larger than memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

from selfexpress.data.sources import RowBlock, RowSource


class MappedSource:
    """Rows of a source, each block mapped when it is asked for.

    Nothing is kept: walking the rows twice computes them twice.

    Parameters
    ----------
    source : RowSource
    function : callable
        Maps rows (K, D) to features (K, ``n_features``).
    n_features : int
    """

    def __init__(
        self, source: RowSource, function: Callable[[Tensor], Tensor], n_features: int
    ) -> None:
        self._source = source
        self._function = function
        self._n_features = n_features

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self._n_features

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._source)

    def blocks(self, block_size: int) -> Iterator[RowBlock]:
        """Yield all rows in order, ``block_size`` at a time; the last may be short."""
        for block in self._source.blocks(block_size):
            yield RowBlock(self._function(block.rows), block.index)

    def take(self, index: Tensor) -> Tensor:
        """Return the rows at the given positions, in that order."""
        return self._function(self._source.take(index))
