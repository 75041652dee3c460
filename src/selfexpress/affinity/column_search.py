"""Compiled search for nearest sparse rows; imports numba, so import it when needed."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray


@numba.njit(parallel=True, cache=True)
def search(
    row_start: NDArray[np.int64],
    row_column: NDArray[np.int32],
    row_value: NDArray[np.float32],
    column_start: NDArray[np.int64],
    column_row: NDArray[np.int32],
    column_value: NDArray[np.float32],
    exclude_self: bool,
    n_references: int,
    n_parts: int,
    index: NDArray[np.int64],
    similarity: NDArray[np.float32],
) -> None:
    """Fill ``index`` and ``similarity`` with the nearest references of every query.

    Queries come by rows, references by columns. Queries are dealt out in ``n_parts``;
    each part keeps one score for every reference and adds to it along the columns
    that a query has entries in.
    """
    n_queries = row_start.shape[0] - 1
    for part in numba.prange(n_parts):
        scores = np.zeros(n_references, dtype=np.float32)
        first = part * n_queries // n_parts
        last = (part + 1) * n_queries // n_parts
        for query in range(first, last):
            for entry in range(row_start[query], row_start[query + 1]):
                column = row_column[entry]
                value = row_value[entry]
                for other in range(column_start[column], column_start[column + 1]):
                    scores[column_row[other]] += value * column_value[other]
            if exclude_self:
                scores[query] = 0
            _keep_largest(scores, index[query], similarity[query])
            scores[:] = 0


@numba.njit(cache=True)
def _keep_largest(
    scores: NDArray[np.float32],
    index: NDArray[np.int64],
    similarity: NDArray[np.float32],
) -> None:
    """Insert positive scores into the sorted list of the largest; ties keep order."""
    for candidate in range(scores.shape[0]):
        score = scores[candidate]
        if score > similarity[-1]:
            place = similarity.shape[0] - 1
            while place > 0 and similarity[place - 1] < score:
                similarity[place] = similarity[place - 1]
                index[place] = index[place - 1]
                place -= 1
            similarity[place] = score
            index[place] = candidate
