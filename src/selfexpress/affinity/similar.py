"""Rows most like each row, and the graph that joins them.

Shapes: M rows, R references, D features, A rows found for each.
"""

from __future__ import annotations

import torch
from scipy import sparse
from torch import Tensor

from selfexpress.affinity.graph import symmetrized
from selfexpress.affinity.sparse_rows import SparseRows
from selfexpress.ops.memory import with_smaller_blocks
from selfexpress.ops.precision import float32_products
from selfexpress.solvers.batches import block_size_or_default, solve_in_batches
from selfexpress.solvers.correlation_scan import scan_correlations

# Entries of a dense block on a GPU: 2^28 float32 numbers are 1 GiB.
_DENSE_ENTRIES = 2**28


def similar_rows(
    rows: Tensor,
    references: Tensor,
    *,
    n_similar: int,
    own: Tensor | None = None,
) -> Tensor:
    """Return the references of largest absolute cosine with each row, in no order.

    Parameters
    ----------
    rows, references : Tensor of shape (M, D) and (R, D)
        Of unit length.
    n_similar : int
    own : Tensor of shape (M,), int64, optional
        Where each row stands among the references, to be left out.

    Returns
    -------
    Tensor of shape (M, A), int64
        -1 pads where a row is orthogonal to the others.
    """
    if own is None:
        own = torch.full((len(rows),), -1, device=rows.device)
    n_similar = min(n_similar, len(references))
    if rows.is_cuda:
        return _by_dense_blocks(rows, references, n_similar, own)
    found = torch.full((len(rows), n_similar), -1)

    def search(batch: slice) -> None:
        part = rows[batch]
        found[batch] = scan_correlations(
            part,
            references,
            excluded=own[batch, None],
            threshold=part.new_zeros(len(part)),
            n_candidates=n_similar,
            block_size=block_size_or_default(None, rows.device),
        ).candidates

    solve_in_batches(
        search, len(rows), batch_size=None, device=rows.device, progress=None
    )
    return found


def _by_dense_blocks(
    rows: Tensor, references: Tensor, n_similar: int, own: Tensor
) -> Tensor:
    """Search by whole rows of products, which a GPU sorts out at once."""

    def search(size: int) -> Tensor:
        found = []
        for part, places in zip(rows.split(size), own.split(size), strict=True):
            products = (part @ references.T).abs_()  # (B, R)
            inside = places >= 0
            products[inside.nonzero()[:, 0], places[inside]] = -1
            found.append(products.topk(n_similar, dim=1, sorted=False).indices)
        return torch.cat(found)

    largest = max(1, _DENSE_ENTRIES // len(references))
    with float32_products("high"):
        return with_smaller_blocks(search, largest, what="The search for similar rows")


def joined_candidates(first: Tensor, second: Tensor) -> Tensor:
    """Return the candidates of both kinds, each once; -1 pads."""
    both = torch.cat([first, second], dim=1).sort(dim=1).values
    is_repeated = torch.zeros_like(both, dtype=torch.bool)
    is_repeated[:, 1:] = both[:, 1:] == both[:, :-1]
    return both.masked_fill(is_repeated, -1)


def neighbor_graph(rows: Tensor, *, n_neighbors: int) -> sparse.csr_array:
    """Join each of N unit rows to those of largest positive cosine with it."""
    n_found = min(2 * n_neighbors, len(rows))
    own = torch.arange(len(rows), device=rows.device)
    similar = similar_rows(rows, rows, n_similar=n_found, own=own)  # (N, A)
    width = min(n_neighbors, n_found)
    columns, values = [], []
    for part, index in zip(rows.split(2048), similar.split(2048), strict=True):
        cosine = (rows[index.clamp_min(0)] @ part[:, :, None])[..., 0]  # (B, A)
        best = cosine.masked_fill(index < 0, 0).topk(width, dim=1)
        columns.append(index.gather(1, best.indices).clamp_min(0))
        values.append(best.values.clamp_min(0).float())
    graph = SparseRows(torch.cat(columns), torch.cat(values), len(rows))
    return symmetrized(graph.to_csr())
