"""Blocks read ahead by a thread, so that reading and computing overlap."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from torch import Tensor

from selfexpress.rows.sources import RowBlock, Rows, RowSource, blocks_between, names_of


class Prefetched(Rows):
    """The blocks of a source, read by a thread while earlier ones are used.

    The thread ends with the walk: when the last block was taken, when the walk is
    left early, or when reading fails, which raises the error in the walk.

    Parameters
    ----------
    source : RowSource
    depth : int
        Blocks that may be read ahead; memory grows by as many.
    """

    def __init__(self, source: RowSource, *, depth: int = 2) -> None:
        super().__init__(len(source), source.n_features, names_of(source))
        self._source = source
        self._depth = depth

    def blocks_between(
        self, start: int, stop: int, *, block_size: int
    ) -> Iterator[RowBlock]:
        """Yield the rows from ``start`` up to ``stop``, as :meth:`blocks` does."""
        blocks = blocks_between(self._source, start, stop, block_size=block_size)
        return _read_ahead(blocks, self._depth)

    def take(self, index: Tensor) -> Tensor:
        """Return the rows at the given positions, in that order."""
        return self._source.take(index)


def _read_ahead(blocks: Iterator[RowBlock], depth: int) -> Iterator[RowBlock]:
    with ThreadPoolExecutor(1) as reader:
        waiting = deque(reader.submit(next, blocks, None) for _ in range(depth))
        try:
            while (block := waiting.popleft().result()) is not None:
                waiting.append(reader.submit(next, blocks, None))
                yield block
        finally:
            # Not those that nobody will ask for.
            reader.shutdown(wait=False, cancel_futures=True)
