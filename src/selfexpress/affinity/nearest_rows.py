"""Nearest rows of sparse matrices by inner product, never forming all pairs at once.

Shapes: M query rows, N reference rows, C columns, k neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

# Entries of a dense block on a GPU: 2^28 float32 numbers are 1 GiB.
_DENSE_BLOCK_ENTRIES = 2**28


@dataclass(frozen=True)
class Neighbors:
    """The k nearest references of every query, nearest first.

    Attributes
    ----------
    index : ndarray of shape (M, k), int64
        Positions of the references; -1 where fewer than k have a positive similarity.
    similarity : ndarray of shape (M, k), float32
        Inner products; 0 where ``index`` is -1.
    """

    index: NDArray[np.int64]
    similarity: NDArray[np.float32]


def nearest_rows(
    queries: sparse.csr_array,
    references: sparse.csr_array,
    *,
    n_neighbors: int,
    exclude_self: bool = False,
    device: torch.device | str = "cpu",
) -> Neighbors:
    """Find the references with the largest inner product with every query.

    For rows of unit length these are the nearest in Euclidean distance. Only
    positive inner products count: rows without a common column are not neighbours.

    Parameters
    ----------
    queries, references : csr_array of shape (M, C) and (N, C)
    n_neighbors : int
    exclude_self : bool
        Leave out reference i for query i, for a matrix against itself.
    device : torch.device or str
        A CPU walks the common columns only; a GPU multiplies dense blocks.

    Returns
    -------
    Neighbors
    """
    if torch.device(device).type == "cpu":
        return _by_common_columns(queries, references, n_neighbors, exclude_self)
    return by_dense_blocks(
        queries,
        references,
        n_neighbors=n_neighbors,
        exclude_self=exclude_self,
        device=device,
    )


def _by_common_columns(
    queries: sparse.csr_array,
    references: sparse.csr_array,
    n_neighbors: int,
    exclude_self: bool,
) -> Neighbors:
    from selfexpress.affinity.column_search import search

    by_column = references.tocsc()
    index = np.full((queries.shape[0], n_neighbors), -1, dtype=np.int64)
    similarity = np.zeros((queries.shape[0], n_neighbors), dtype=np.float32)
    search(
        queries.indptr.astype(np.int64),
        queries.indices.astype(np.int32),
        queries.data.astype(np.float32),
        by_column.indptr.astype(np.int64),
        by_column.indices.astype(np.int32),
        by_column.data.astype(np.float32),
        exclude_self,
        references.shape[0],
        min(queries.shape[0], 4 * torch.get_num_threads()),
        index,
        similarity,
    )
    return Neighbors(index, similarity)


def by_dense_blocks(
    queries: sparse.csr_array,
    references: sparse.csr_array,
    *,
    n_neighbors: int,
    exclude_self: bool,
    device: torch.device | str,
    dtype: torch.dtype = torch.bfloat16,
) -> Neighbors:
    """Search by products of dense blocks; see :func:`nearest_rows`.

    Candidates are found in ``dtype``, a few more than asked for; their similarity is
    then computed again in float32 and decides.
    """
    query_rows = _DeviceRows(queries, device)
    reference_rows = _DeviceRows(references, device)
    n_candidates = min(len(reference_rows), 4 * n_neighbors + exclude_self)
    block_size = max(1, _DENSE_BLOCK_ENTRIES // max(1, references.shape[1]))
    index, similarity = [], []
    for block in torch.arange(len(query_rows), device=device).split(block_size):
        dense = query_rows.dense(block)  # (B, C)
        candidates = _candidates(
            dense.to(dtype),
            reference_rows,
            n_candidates=n_candidates,
            block_size=block_size,
        )
        scores = _exact_similarity(dense, reference_rows, candidates)
        if exclude_self:
            scores = scores.masked_fill(candidates == block[:, None], 0)
        best, order = scores.topk(min(n_neighbors, n_candidates))
        found = candidates.gather(1, order).masked_fill(best <= 0, -1)
        index.append(found.cpu().numpy())
        similarity.append(best.clamp_min(0).cpu().numpy())
    missing = ((0, 0), (0, n_neighbors - min(n_neighbors, n_candidates)))
    return Neighbors(
        np.pad(np.concatenate(index), missing, constant_values=-1),
        np.pad(np.concatenate(similarity), missing),
    )


class _DeviceRows:
    """A CSR matrix on a device, read a few rows at a time."""

    def __init__(self, matrix: sparse.csr_array, device: torch.device | str) -> None:
        self._start = torch.from_numpy(matrix.indptr.astype(np.int64)).to(device)
        self._column = torch.from_numpy(matrix.indices.astype(np.int64)).to(device)
        self._value = torch.from_numpy(matrix.data.astype(np.float32)).to(device)
        self._n_columns = matrix.shape[1]

    def __len__(self) -> int:
        return len(self._start) - 1

    def entries(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return place in ``rows``, column and value of every stored entry."""
        start = self._start[rows]
        lengths = self._start[rows + 1] - start
        place = torch.repeat_interleave(lengths)
        first = torch.cumsum(lengths, 0) - lengths
        offset = torch.arange(len(place), device=rows.device) - first[place]
        position = start[place] + offset
        return place, self._column[position], self._value[position]

    def dense(self, rows: Tensor) -> Tensor:
        place, column, value = self.entries(rows)
        dense = value.new_zeros(len(rows), self._n_columns)
        dense[place, column] = value
        return dense


def _candidates(
    dense_queries: Tensor,
    references: _DeviceRows,
    *,
    n_candidates: int,
    block_size: int,
) -> Tensor:
    """Return the references with the largest products, block after block."""
    device, dtype = dense_queries.device, dense_queries.dtype
    best_scores = dense_queries.new_full((len(dense_queries), n_candidates), -torch.inf)
    best_index = torch.zeros_like(best_scores, dtype=torch.int64)
    for block in torch.arange(len(references), device=device).split(block_size):
        scores = dense_queries @ references.dense(block).to(dtype).T
        scores, found = scores.topk(min(n_candidates, len(block)))
        merged = torch.cat([best_scores, scores], dim=1)
        merged_index = torch.cat([best_index, block[found]], dim=1)
        best_scores, order = merged.topk(n_candidates)
        best_index = merged_index.gather(1, order)
    return best_index


def _exact_similarity(
    dense_queries: Tensor, references: _DeviceRows, candidates: Tensor
) -> Tensor:
    """Return the inner product of every query with each of its candidates."""
    scores = dense_queries.new_zeros(candidates.shape)
    for place, chosen in enumerate(candidates.unbind(dim=1)):
        query, column, value = references.entries(chosen)
        products = dense_queries[query, column] * value
        scores[:, place].index_add_(0, query, products)
    return scores
