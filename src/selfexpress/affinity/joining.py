"""Weak edges that hold a graph together which fell into too many pieces."""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from selfexpress.ops.sparse import component_of_nodes

# Of an average edge: the pieces stay what they are, and only their order of merging
# is decided by the new edges.
_STRENGTH = 1e-2
_N_EDGES = 3
_BLOCK_ENTRIES = 2**24


def join_components(
    affinity: sparse.csr_array, rows: Tensor, *, n_clusters: int
) -> sparse.csr_array:
    """Join every row weakly to the most similar rows of other components.

    A graph with at most ``n_clusters`` components is returned as it is.

    Parameters
    ----------
    affinity : csr_array of shape (N, N)
    rows : Tensor of shape (N, D)
        Of unit length; similar are rows with a large squared cosine.
    n_clusters : int
    """
    component = component_of_nodes(affinity)
    if component.max() < n_clusters:
        return affinity
    other, weight = _most_similar_elsewhere(rows, component)
    row = np.repeat(np.arange(len(rows)), other.shape[1])
    mean_edge = affinity.data.mean() if affinity.nnz else 1.0
    weak = sparse.csr_array(
        (_STRENGTH * mean_edge * weight.ravel(), (row, other.ravel())),
        shape=affinity.shape,
    )
    return sparse.csr_array(affinity + (weak + weak.T) / 2)


def _most_similar_elsewhere(
    rows: Tensor, component: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return index and squared cosine of each row's likes in other components."""
    groups = torch.from_numpy(component).to(rows.device)
    n_edges = min(_N_EDGES, len(rows) - 1)
    block_size = max(1, _BLOCK_ENTRIES // len(rows))
    index, weight = [], []
    for block, own in zip(
        rows.split(block_size), groups.split(block_size), strict=True
    ):
        squares = (block @ rows.T).square()
        squares.masked_fill_(own[:, None] == groups, 0)
        best, found = squares.topk(n_edges, dim=1)
        index.append(found.cpu().numpy())
        weight.append(best.cpu().numpy())
    return np.concatenate(index), np.concatenate(weight)
