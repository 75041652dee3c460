"""From an affinity to an embedding and labels.

Shapes: N samples, E eigenvectors.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from selfexpress.errors import DegenerateWarning
from selfexpress.ops.sparse import component_of_nodes
from selfexpress.spectral.counting import N_EIGENVECTORS, count_clusters
from selfexpress.spectral.eigenvectors import (
    SMALLEST_EIGENVALUE,
    laplacian_eigenvectors,
    unit_rows,
)
from selfexpress.spectral.information import Walk, merge_pieces
from selfexpress.spectral.k_means import k_means_labels

# "auto" finds pieces in an embedding of so many dimensions for each cluster, ...
_DIMENSIONS_A_CLUSTER = 2
# ... tries so many pieces for each, ...
_PIECES_A_CLUSTER = (2, 3, 4)
# ... unless the next eigenvalue is so many times the last: then there is no doubt.
_CLEAR_GAP = 3.0
# Of two or three clusters the information is little but their sizes: a large one would
# be halved before a small one is found. They are believed, too, ...
_FEWEST_MERGED = 4
# ... if the last eigenvalue says that a walker stays in them. In a dense graph without
# groups it is near 1; in a sparse one it is small anyway.
_HOLDS_GROUPS = 0.5
# Merging takes time that grows with the cube of the pieces.
_MOST_PIECES = 400
# Restarts of k-means that do for pieces, as a share of those asked for.
_RESTARTS_FOR_PIECES = 0.2


@dataclass(frozen=True)
class SpectralClusters:
    """Labels of an affinity's nodes and what they were found in.

    Attributes
    ----------
    labels : ndarray of shape (N,), int64
    embedding : ndarray of shape (N, E)
        Eigenvectors of the normalised Laplacian, rows scaled to unit length.
    eigenvalues : ndarray of shape (E,)
        Eigenvalues of the normalised Laplacian, ascending.
    n_components : int
        Connected components of the graph.
    n_clusters : int
        As asked for, or as counted.
    """

    labels: NDArray[np.int64]
    embedding: NDArray[np.float64]
    eigenvalues: NDArray[np.float64]
    n_components: int
    n_clusters: int


def spectral_clusters(
    affinity: sparse.csr_array,
    n_clusters: int | str,
    *,
    n_eigenvectors: int | str | None = None,
    n_init: int = 20,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> SpectralClusters:
    """Cluster the nodes of a graph by normalised spectral clustering.

    Parameters
    ----------
    affinity : csr_array of shape (N, N)
        Symmetric and non-negative.
    n_clusters : int or "auto"
        "auto" counts them: see ``spectral.counting``.
    n_eigenvectors : int or "auto", optional
        Dimension of the embedding that k-means finds the clusters in; ``n_clusters``
        unless given. "auto" does so for two or three clusters, as a rule, and if a
        gap in the eigenvalues says that there are so many. If not, it finds more
        pieces than clusters in more dimensions and merges them: see
        ``spectral.information``.
    n_init : int
        Restarts of k-means; the best one is kept.
    seed : int
    device : torch.device or str
        Where eigenvectors, k-means and walks are computed.

    Returns
    -------
    SpectralClusters

    Warns
    -----
    DegenerateWarning
        If the graph has more connected components than ``n_clusters``, if clusters
        stay empty, or if "auto" finds no number that stands out.
    """
    component = component_of_nodes(affinity)
    find_eigenvectors = partial(
        laplacian_eigenvectors,
        affinity,
        seed=seed,
        component=component,
        device=device,
    )
    known = None
    if isinstance(n_clusters, str):
        known = find_eigenvectors(min(N_EIGENVECTORS, affinity.shape[0]))
        n_clusters = count_clusters(affinity, *known, seed=seed, device=device)
    n_components = 1 + int(component.max())
    if n_components > n_clusters:
        warnings.warn(
            f"The affinity graph should have at most n_clusters={n_clusters} connected "
            f"components, but has {n_components}, so that some clusters are joined "
            "arbitrarily; raise n_nonzero or n_neighbors, or lower l1_ratio.",
            DegenerateWarning,
            stacklevel=3,
        )
    n_nodes = affinity.shape[0]
    is_auto = n_eigenvectors == "auto"
    wanted = _DIMENSIONS_A_CLUSTER * n_clusters if is_auto else n_eigenvectors
    dimension = min(int(wanted or n_clusters), n_nodes)
    if known is None or len(known[0]) < dimension:
        known = find_eigenvectors(dimension)
    eigenvalues, vectors = known[0][:dimension], known[1][:, :dimension]
    is_whole = n_components <= n_clusters
    if is_auto and _are_plain(eigenvalues, n_clusters, is_whole=is_whole):
        eigenvalues, vectors = eigenvalues[:n_clusters], vectors[:, :n_clusters]
        is_auto = False
    embedding = unit_rows(vectors)
    if is_auto:
        n_init = max(1, round(_RESTARTS_FOR_PIECES * n_init))
        walk = Walk(affinity, device=device)
        find_pieces = partial(
            k_means_labels, embedding, n_init=n_init, seed=seed, device=device
        )
        most = max(n_clusters, min(_MOST_PIECES, n_nodes // 2))
        labels = _merged_pieces(walk, find_pieces, n_clusters, most_pieces=most)
    else:
        labels = k_means_labels(
            embedding, n_clusters, n_init=n_init, seed=seed, device=device
        )
    _warn_of_empty_clusters(labels, n_clusters)
    return SpectralClusters(labels, embedding, eigenvalues, n_components, n_clusters)


def _are_plain(
    eigenvalues: NDArray[np.float64], n_clusters: int, *, is_whole: bool
) -> bool:
    """Say whether as many eigenvectors as clusters tell these apart.

    A graph in more pieces than clusters is not whole: its first eigenvectors are
    arbitrary ones of many.
    """
    is_few = n_clusters < _FEWEST_MERGED and len(eigenvalues) >= n_clusters
    if is_few and is_whole and eigenvalues[n_clusters - 1] < _HOLDS_GROUPS:
        return True
    return _has_clear_gap(eigenvalues, n_clusters)


def _has_clear_gap(eigenvalues: NDArray[np.float64], n_clusters: int) -> bool:
    if len(eigenvalues) <= n_clusters:
        return True
    last, following = eigenvalues[n_clusters - 1 : n_clusters + 1]
    return bool(following > max(_CLEAR_GAP * last, SMALLEST_EIGENVALUE))


def _merged_pieces(
    walk: Walk,
    find_pieces: Callable[[int], NDArray[np.int64]],
    n_clusters: int,
    *,
    most_pieces: int,
) -> NDArray[np.int64]:
    """Return the clusters of most information, merged of more and of fewer pieces."""
    numbers = {min(m * n_clusters, most_pieces) for m in _PIECES_A_CLUSTER}
    found = []
    for n_pieces in sorted(numbers):
        pieces = find_pieces(n_pieces)
        owner = merge_pieces(walk.joint(pieces, n_pieces), n_clusters)
        found.append(walk.refine(owner[pieces], n_clusters))
    labels, _ = max(found, key=lambda result: result[1])
    return labels


def _warn_of_empty_clusters(labels: NDArray[np.int64], n_clusters: int) -> None:
    n_found = len(np.unique(labels))
    if n_found < n_clusters:
        warnings.warn(
            f"There should be n_clusters={n_clusters} clusters, but the embedding has "
            f"only {n_found} places to be in, so that the others stay empty; lower "
            "n_clusters, or raise n_nonzero or n_neighbors.",
            DegenerateWarning,
            stacklevel=4,
        )
