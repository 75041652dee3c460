"""Blocks read ahead by a thread, so that reading and computing overlap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from queue import Empty, Full, Queue
from threading import Event, Thread

from torch import Tensor

from selfexpress.rows.sources import RowBlock, RowSource, blocks_between, names_of

# Seconds between looks at whether the reader is still wanted.
_PATIENCE = 0.1


class Prefetched:
    """The blocks of a source, read by a thread while earlier ones are used.

    The thread ends with the walk: when the last block was taken, when the walk is
    left early, or when reading fails, which raises the error in the walk.

    Parameters
    ----------
    source : RowSource
    depth : int
        Blocks that may wait to be used; memory grows by as many, and the one being
        read.
    """

    def __init__(self, source: RowSource, *, depth: int = 2) -> None:
        self._source = source
        self._depth = depth

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self._source.n_features

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns, if the source tells any."""
        return names_of(self._source)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._source)

    def blocks(self, block_size: int) -> Iterator[RowBlock]:
        """Yield all rows in order, ``block_size`` at a time; the last may be short."""
        return _read_ahead(self._source.blocks(block_size), self._depth)

    def blocks_between(
        self, start: int, stop: int, *, block_size: int
    ) -> Iterator[RowBlock]:
        """Yield the rows from ``start`` up to ``stop``, as :meth:`blocks` does."""
        blocks = blocks_between(self._source, start, stop, block_size=block_size)
        return _read_ahead(blocks, self._depth)

    def take(self, index: Tensor) -> Tensor:
        """Return the rows at the given positions, in that order."""
        return self._source.take(index)


@dataclass(frozen=True)
class _Ended:
    """Put last into the queue: reading is over, or failed."""

    error: BaseException | None = None


def _read_ahead(blocks: Iterator[RowBlock], depth: int) -> Iterator[RowBlock]:
    queue: Queue[RowBlock | _Ended] = Queue(maxsize=depth)
    is_over = Event()
    reader = Thread(target=_fill, args=(blocks, queue, is_over), daemon=True)
    reader.start()
    try:
        while not isinstance(found := queue.get(), _Ended):
            yield found
        if found.error is not None:
            raise found.error
    finally:
        is_over.set()
        _empty(queue)
        reader.join()


def _fill(
    blocks: Iterator[RowBlock], queue: Queue[RowBlock | _Ended], is_over: Event
) -> None:
    try:
        for block in blocks:
            _put(block, queue, is_over)
            if is_over.is_set():
                return
        _put(_Ended(), queue, is_over)
    # Whatever goes wrong belongs to the thread that asked for the blocks.
    except BaseException as error:
        _put(_Ended(error), queue, is_over)


def _put(
    found: RowBlock | _Ended, queue: Queue[RowBlock | _Ended], is_over: Event
) -> None:
    """Wait for room, but not for ever: nobody may be left to make any."""
    while not is_over.is_set():
        try:
            queue.put(found, timeout=_PATIENCE)
        except Full:
            continue
        return


def _empty(queue: Queue[RowBlock | _Ended]) -> None:
    while True:
        try:
            queue.get_nowait()
        except Empty:
            return
