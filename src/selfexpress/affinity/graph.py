"""Sparse coefficients to a symmetric affinity: the paper's two ways, and three more."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from selfexpress.affinity.nearest_rows import nearest_rows
from selfexpress.affinity.sparse_rows import normalize_rows
from selfexpress.errors import DegenerateWarning
from selfexpress.ops.sparse import normalized_adjacency

# Rows joined to each where the same rows express them, and how much the graph of the
# coefficients themselves counts beside these.
_N_ALIKE = 15
_EXPRESSING = 8.0
_NONE = 1e-12


def build_affinity(
    coefficients: sparse.csr_array,
    *,
    kind: str = "nearest_neighbors",
    n_neighbors: int = 3,
    device: torch.device | str = "cpu",
) -> sparse.csr_array:
    """Turn coefficients into a symmetric, non-negative affinity without self loops.

    Parameters
    ----------
    coefficients : csr_array of shape (N, M)
        Row j expresses sample j. ``kind="symmetric"`` needs M = N.
    kind : {"symmetric", "squared_cosines", "weighted_neighbors", \
"nearest_neighbors", "combined"}
        ``(|C| + |C|^T) / 2``, rows scaled to unit l2 norm first; the squared cosine of
        every two rows; every row joined to the ``n_neighbors`` rows nearest to it in
        coefficient space, with their cosine or with 1 for weight; or a mean of the
        first and of :func:`expressed_alike`.
    n_neighbors : int
        Used by the third and the fourth.
    device : torch.device or str
        Where nearest rows are searched.

    Returns
    -------
    csr_array of shape (N, N)
    """
    _warn_of_empty_rows(coefficients)
    n_neighbors = min(n_neighbors, coefficients.shape[0])
    graph = _GRAPHS[kind](coefficients, n_neighbors, torch.device(device))
    return graph if kind == "combined" else symmetrized(graph)


def expressed_alike(
    coefficients: sparse.csr_array, *, device: torch.device | str
) -> sparse.csr_array:
    """Join every row to those that the same rows express, whatever the signs."""
    nearest = _neighbor_graph(abs(coefficients), _N_ALIKE, torch.device(device))
    return symmetrized(nearest)


def joined_graphs(*parts: tuple[float, sparse.csr_array]) -> sparse.csr_array:
    """Return the sum of graphs, each weighted and with nodes of equal degree."""
    return sparse.csr_array(sum(w * normalized_adjacency(graph) for w, graph in parts))


def share_within(affinity: sparse.csr_array, labels: NDArray[np.int64]) -> float:
    """Return the share of the edges' weight that joins nodes of the same label."""
    row = np.repeat(labels, np.diff(affinity.indptr))
    is_within = row == labels[affinity.indices]
    return float(affinity.data[is_within].sum() / max(affinity.data.sum(), _NONE))


def symmetrized(directed: sparse.csr_array) -> sparse.csr_array:
    """Return the mean of a graph and its transpose, without self loops."""
    half = sparse.csr_array(
        (directed.data / 2, directed.indices, directed.indptr), shape=directed.shape
    )
    affinity = half + half.T.tocsr()
    if affinity.diagonal().any():
        affinity.setdiag(0)
    affinity.eliminate_zeros()
    affinity.sort_indices()
    return affinity


def _warn_of_empty_rows(coefficients: sparse.csr_array) -> None:
    n_empty = int((np.diff(coefficients.indptr) == 0).sum())
    if n_empty:
        warnings.warn(
            f"Every row should have a non-zero coefficient, but {n_empty} of "
            f"{coefficients.shape[0]} have none and stay isolated in the graph; raise "
            "gamma, or remove rows that are zero or unlike all others.",
            DegenerateWarning,
            stacklevel=4,
        )


def _neighbor_graph(
    coefficients: sparse.csr_array, n_neighbors: int, device: torch.device
) -> sparse.csr_array:
    """Join every row to its nearest rows; edges weigh as much as the cosine."""
    neighbors = nearest_rows(
        coefficients,
        coefficients,
        n_neighbors=n_neighbors,
        exclude_self=True,
        device=device,
    )
    row, place = np.nonzero(neighbors.index >= 0)
    column = neighbors.index[row, place]
    weights = neighbors.similarity[row, place]
    n_rows = coefficients.shape[0]
    return sparse.csr_array((weights, (row, column)), shape=(n_rows, n_rows))


def _binary_neighbor_graph(
    coefficients: sparse.csr_array, n_neighbors: int, device: torch.device
) -> sparse.csr_array:
    """Join every row to its nearest rows; edges weigh 1."""
    graph = _neighbor_graph(coefficients, n_neighbors, device)
    graph.data[:] = 1
    return graph


def _sizes(
    coefficients: sparse.csr_array, _: int, __: torch.device
) -> sparse.csr_array:
    """Join every row to those that express it, by the size of the coefficient."""
    return abs(normalize_rows(coefficients))


def _squared_cosines(
    coefficients: sparse.csr_array, _: int, __: torch.device
) -> sparse.csr_array:
    """Join every two rows by the squared cosine between them."""
    unit = normalize_rows(coefficients)
    return (unit @ unit.T) ** 2


def _combined(
    coefficients: sparse.csr_array, _: int, device: torch.device
) -> sparse.csr_array:
    """Join rows that express each other, and, weaker, those expressed alike.

    The first alone tells hard unions of subspaces apart; the second gives each row
    enough neighbours where few coefficients are large.
    """
    expressing = symmetrized(_sizes(coefficients, 0, device))
    alike = expressed_alike(coefficients, device=device)
    return joined_graphs((_EXPRESSING, expressing), (1.0, alike))


_GRAPHS = {
    "combined": _combined,
    "symmetric": _sizes,
    "squared_cosines": _squared_cosines,
    "weighted_neighbors": _neighbor_graph,
    "nearest_neighbors": _binary_neighbor_graph,
}
