"""Nearest rows of sparse matrices by cosine, never forming all pairs at once.

Shapes: M query rows, N reference rows, C columns, k neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from selfexpress.affinity.sparse_rows import SparseRows, normalize_rows
from selfexpress.ops.memory import with_smaller_blocks

# Entries of a dense block on a GPU: 2^28 float32 numbers are 1 GiB.
_DENSE_BLOCK_ENTRIES = 2**28

# Inner products of unit rows change by about 1 / sqrt(8192) = 0.01 in a sketch.
_SKETCH_COLUMNS = 8192
# The nearest rows of an exact solution have cosines of 0.2 only, not far above what the
# sketch makes of any two: 4 candidates for each neighbour miss a tenth of them, and a
# graph falls to pieces; 16 miss one in a thousand.
_CANDIDATES_A_NEIGHBOR = 16


@dataclass(frozen=True)
class Neighbors:
    """The k nearest references of every query, nearest first.

    Attributes
    ----------
    index : ndarray of shape (M, k), int64
        Positions of the references; -1 where fewer than k have a positive similarity.
    similarity : ndarray of shape (M, k), float32
        Cosines; 0 where ``index`` is -1.
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
    """Find the references with the largest cosine with every query.

    Scaled to unit length, these are the nearest in Euclidean distance. Only positive
    cosines count: rows without a common column are not neighbours.

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

    is_same = queries is references
    references = normalize_rows(references)
    queries = references if is_same else normalize_rows(queries)
    by_column = references.tocsc()
    index = np.full((queries.shape[0], n_neighbors), -1, dtype=np.int64)
    similarity = np.zeros((queries.shape[0], n_neighbors), dtype=np.float32)
    n_threads = torch.get_num_threads()
    search(
        queries.indptr.astype(np.int64),
        queries.indices.astype(np.int32),
        queries.data.astype(np.float32),
        by_column.indptr.astype(np.int64),
        by_column.indices.astype(np.int32),
        by_column.data.astype(np.float32),
        exclude_self,
        references.shape[0],
        min(queries.shape[0], 4 * n_threads),
        index,
        similarity,
    )
    # Numba's threads, when they start, set the number that torch goes by as well.
    torch.set_num_threads(n_threads)
    return Neighbors(index, similarity)


def by_dense_blocks(
    queries: sparse.csr_array,
    references: sparse.csr_array,
    *,
    n_neighbors: int,
    exclude_self: bool,
    device: torch.device | str,
) -> Neighbors:
    """Search by products of dense blocks; see :func:`nearest_rows`.

    Candidates, more than asked for, are found by products of rows whose columns were
    added up in a few thousand groups, with random signs: such sketches keep inner
    products up to a small error. The candidates' similarity is then computed from the
    rows themselves and decides.
    """
    reference_rows = SparseRows.from_csr(references, device).normalized()
    query_rows = reference_rows
    if queries is not references:
        query_rows = SparseRows.from_csr(queries, device).normalized()
    index, similarity = nearest_sparse_rows(
        query_rows, reference_rows, n_neighbors=n_neighbors, exclude_self=exclude_self
    )
    missing = ((0, 0), (0, n_neighbors - index.shape[1]))
    return Neighbors(
        np.pad(index.cpu().numpy(), missing, constant_values=-1),
        np.pad(similarity.cpu().numpy(), missing),
    )


@torch.inference_mode()
def nearest_sparse_rows(
    queries: SparseRows,
    references: SparseRows,
    *,
    n_neighbors: int,
    exclude_self: bool,
) -> tuple[Tensor, Tensor]:
    """Return index and cosine of the nearest references, where the rows are.

    Both sides must be normalised. See :class:`Neighbors`; there may be fewer columns.
    """
    n_references = len(references)
    wanted = _CANDIDATES_A_NEIGHBOR * (n_neighbors + 1) + exclude_self
    n_candidates = min(n_references, wanted)
    sketch = _Sketch(references.n_columns, references.column.device)
    sketched = sketch.apply(references)  # (N, S)

    def search(block_size: int) -> tuple[Tensor, Tensor]:
        index, similarity = [], []
        for first in range(0, len(queries), block_size):
            block = queries.part(first, first + block_size)
            scores = sketch.apply(block) @ sketched.T  # (B, N)
            candidates = scores.topk(n_candidates, dim=1, sorted=False).indices
            exact = _exact_similarity(block, references, candidates)
            if exclude_self:
                own = torch.arange(first, first + len(candidates), device=exact.device)
                exact = exact.masked_fill(candidates == own[:, None], 0)
            best, order = exact.topk(min(n_neighbors, n_candidates))
            index.append(candidates.gather(1, order).masked_fill(best <= 0, -1))
            similarity.append(best.clamp_min(0))
        return torch.cat(index), torch.cat(similarity)

    largest = max(1, _DENSE_BLOCK_ENTRIES // max(references.n_columns, n_references))
    return with_smaller_blocks(search, largest, what="The search for nearest rows")


class _Sketch:
    """Adds columns up in groups, with random signs; the identity for few columns."""

    def __init__(self, n_columns: int, device: torch.device) -> None:
        self._n_groups = min(n_columns, _SKETCH_COLUMNS)
        generator = torch.Generator().manual_seed(0)
        group = torch.arange(n_columns)
        sign = torch.ones(n_columns)
        if n_columns > _SKETCH_COLUMNS:
            group = torch.randint(self._n_groups, (n_columns,), generator=generator)
            sign = 2.0 * torch.randint(2, (n_columns,), generator=generator) - 1
        self._group = group.to(device)
        self._sign = sign.to(device)

    def apply(self, rows: SparseRows) -> Tensor:
        """Return the sketches, (M, S), in bfloat16 on a GPU."""
        device = rows.value.device
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        result = torch.empty(len(rows), self._n_groups, dtype=dtype, device=device)
        step = max(1, _DENSE_BLOCK_ENTRIES // (8 * self._n_groups))
        for first in range(0, len(rows), step):
            part = rows.part(first, first + step)
            grouped = SparseRows(
                self._group[part.column],
                part.value * self._sign[part.column],
                self._n_groups,
            )
            result[first : first + step] = grouped.dense()
        return result


def _exact_similarity(
    queries: SparseRows, references: SparseRows, candidates: Tensor
) -> Tensor:
    """Return the inner product of every query with each of its candidates."""
    dense = queries.dense()  # (B, C)
    scores = dense.new_zeros(candidates.shape)
    for place, chosen in enumerate(candidates.unbind(dim=1)):
        found = dense.gather(1, references.column[chosen])
        scores[:, place] = (found * references.value[chosen]).sum(dim=1)
    return scores
