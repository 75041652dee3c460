"""Several sources as one, and the part of a source that one process owns.

Shapes: N samples, D features, K rows of a block.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from selfexpress.errors import DataError, one_line
from selfexpress.rows.sources import RowBlock, Rows, RowSource, blocks_between, names_of


class Shards(Rows):
    """The rows of several sources, one source after the other.

    Parameters
    ----------
    sources : sequence of RowSource
        At least one; all with the same features.
    labels : sequence of str, optional
        What messages call the sources: their files.

    Raises
    ------
    DataError
        If there is no source, or they differ in width or in the names of columns.
    """

    def __init__(
        self, sources: Sequence[RowSource], *, labels: Sequence[str] | None = None
    ) -> None:
        if not sources:
            raise DataError("Shards must exist, but there are none. Check the files.")
        called = labels or [f"shard {number}" for number in range(len(sources))]
        first: tuple[str, tuple[str, ...]] | None = None
        for source, label in zip(sources, called, strict=True):
            if source.n_features != sources[0].n_features:
                raise DataError(
                    f"Shards must have equally many features, but {label} has "
                    f"{source.n_features} and {called[0]} {sources[0].n_features}. "
                    "Remove or correct it."
                )
            if (names := names_of(source)) is not None:
                first = first or (label, names)
                _require_same_names(names, label, known=first[1], first=first[0])
        self._sources = list(sources)
        self._starts = [0, *accumulate(map(len, sources))]
        names = None if first is None else first[1]
        super().__init__(self._starts[-1], sources[0].n_features, names)

    def blocks_between(
        self, start: int, stop: int, *, block_size: int
    ) -> Iterator[RowBlock]:
        """Yield the rows from ``start`` up to ``stop``, as :meth:`blocks` does.

        Shards without a row among them are not opened.
        """
        pieces = self._pieces(start, stop, block_size)
        return regroup(pieces, start=start, block_size=block_size)

    def take(self, index: Tensor) -> Tensor:
        """Return the rows at the given positions, in that order."""
        wanted = index.cpu()
        starts = torch.tensor(self._starts)
        shard = torch.searchsorted(starts, wanted, right=True) - 1
        order = torch.argsort(shard, stable=True)
        parts = [
            self._sources[number].take(wanted[shard == number] - starts[number])
            for number in shard.unique().tolist()
        ]
        if not parts:
            return torch.empty(0, self.n_features)
        # Shards may be of different types: joining them takes the widest.
        rows = torch.cat(parts)
        return rows[torch.argsort(order).to(rows.device)]

    def _pieces(self, start: int, stop: int, block_size: int) -> Iterator[Tensor]:
        number = max(0, bisect_right(self._starts, start) - 1)
        for source, offset in zip(
            self._sources[number:], self._starts[number:], strict=False
        ):
            if offset >= stop:
                return
            first, last = max(start - offset, 0), min(stop - offset, len(source))
            blocks = blocks_between(source, first, last, block_size=block_size)
            yield from (block.rows for block in blocks)


def _require_same_names(
    names: Sequence[str], label: str, *, known: Sequence[str], first: str
) -> None:
    for found, expected in zip(names, known, strict=True):
        if found != expected:
            raise DataError(
                f"Shards must have the same columns in the same order, but {label} has "
                f"{one_line(found)!r} where {first} has {one_line(expected)!r}. Write "
                "them alike."
            )


class OwnRows(Rows):
    """The rows of a source that this process owns, as part of the whole.

    The length is that of the whole source and positions are those in it, but blocks
    hold the own rows only, from ``start`` up to ``stop``. ``combine`` adds up a tensor
    over all processes, which call :meth:`take` together.
    """

    def __init__(
        self,
        source: RowSource,
        start: int,
        stop: int,
        *,
        combine: Callable[[Tensor], Tensor],
    ) -> None:
        super().__init__(len(source), source.n_features)
        self._source = source
        self._start = start
        self._stop = stop
        self._combine = combine

    def blocks(self, block_size: int) -> Iterator[RowBlock]:
        """Yield the own rows in order, ``block_size`` at a time."""
        return blocks_between(
            self._source, self._start, self._stop, block_size=block_size
        )

    def take(self, index: Tensor) -> Tensor:
        """Return rows of any process, in the order asked for."""
        is_own = (index >= self._start) & (index < self._stop)
        own = self._source.take(index[is_own])
        rows = own.new_zeros(len(index), self.n_features)
        rows[is_own.to(own.device)] = own
        return self._combine(rows)


def regroup(
    pieces: Iterable[Tensor], *, start: int, block_size: int
) -> Iterator[RowBlock]:
    """Turn pieces of any length into blocks of equal length, counted from ``start``."""
    waiting: list[Tensor] = []
    n_waiting = 0
    for piece in pieces:
        rest = piece
        while n_waiting + len(rest) >= block_size:
            part, rest = rest.split(
                [block_size - n_waiting, len(rest) + n_waiting - block_size]
            )
            yield _block([*waiting, part], start)
            start += block_size
            waiting, n_waiting = [], 0
        if len(rest):
            waiting.append(rest)
            n_waiting += len(rest)
    if waiting:
        yield _block(waiting, start)


def _block(parts: list[Tensor], start: int) -> RowBlock:
    rows = parts[0] if len(parts) == 1 else torch.cat(parts)
    return RowBlock(rows, torch.arange(start, start + len(rows), device=rows.device))
