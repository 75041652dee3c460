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
from scipy.sparse.csgraph import connected_components
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from selfexpress.errors import DegenerateWarning
from selfexpress.spectral.eigenvectors import laplacian_eigenvectors
from selfexpress.spectral.information import Walk, merge_pieces
from selfexpress.spectral.k_means import k_means

# "auto" finds pieces in an embedding of so many dimensions for each cluster, ...
_DIMENSIONS_A_CLUSTER = 2
# ... tries so many pieces for each, ...
_PIECES_A_CLUSTER = (2, 3, 4)
# ... unless the next eigenvalue is so many times the last: then there is no doubt.
_CLEAR_GAP = 3.0
# Below this an eigenvalue is 0 but for rounding.
_SMALLEST_EIGENVALUE = 1e-6
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
    """

    labels: NDArray[np.int64]
    embedding: NDArray[np.float64]
    eigenvalues: NDArray[np.float64]
    n_components: int


def spectral_clusters(
    affinity: sparse.csr_array,
    n_clusters: int,
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
    n_clusters : int
    n_eigenvectors : int or "auto", optional
        Dimension of the embedding that k-means finds the clusters in; ``n_clusters``
        unless given. "auto" does so if a gap in the eigenvalues says that there are
        so many clusters. If not, it finds more pieces than clusters in more
        dimensions and merges them: see ``spectral.information``.
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
        If the graph has more connected components than ``n_clusters``, or if clusters
        stay empty.
    """
    n_components = int(connected_components(affinity, directed=False)[0])
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
    dimension = _DIMENSIONS_A_CLUSTER * n_clusters if is_auto else n_eigenvectors
    eigenvalues, vectors = laplacian_eigenvectors(
        affinity,
        min(int(dimension or n_clusters), n_nodes),
        seed=seed,
        device=device,
    )
    if is_auto and _has_clear_gap(eigenvalues, n_clusters):
        eigenvalues, vectors = eigenvalues[:n_clusters], vectors[:, :n_clusters]
        is_auto = False
    embedding = _unit_rows(vectors)
    if is_auto:
        n_init = max(1, round(_RESTARTS_FOR_PIECES * n_init))
        walk = Walk(affinity, device=device)
        find_pieces = partial(
            _k_means, embedding, n_init=n_init, seed=seed, device=device
        )
        most = max(n_clusters, min(_MOST_PIECES, n_nodes // 2))
        labels = _merged_pieces(walk, find_pieces, n_clusters, most_pieces=most)
    else:
        labels = _k_means(
            embedding, n_clusters, n_init=n_init, seed=seed, device=device
        )
    _warn_of_empty_clusters(labels, n_clusters)
    return SpectralClusters(labels, embedding, eigenvalues, n_components)


def _has_clear_gap(eigenvalues: NDArray[np.float64], n_clusters: int) -> bool:
    if len(eigenvalues) <= n_clusters:
        return True
    last, following = eigenvalues[n_clusters - 1 : n_clusters + 1]
    return bool(following > max(_CLEAR_GAP * last, _SMALLEST_EIGENVALUE))


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


def _unit_rows(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    embedding: NDArray[np.float64] = vectors / np.where(norms > 0, norms, 1)
    return embedding


def _k_means(
    embedding: NDArray[np.float64],
    n_clusters: int,
    *,
    n_init: int,
    seed: int,
    device: torch.device | str,
) -> NDArray[np.int64]:
    if torch.device(device).type == "cpu":
        with warnings.catch_warnings():
            # Fewer distinct points than clusters; the caller says so in our words.
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = KMeans(n_clusters, n_init=n_init, random_state=seed).fit(embedding)
        labels: NDArray[np.int64] = found.labels_.astype(np.int64)
        return labels
    points = torch.from_numpy(embedding).to(device, torch.float32)
    return k_means(points, n_clusters, n_init=n_init, seed=seed).cpu().numpy()
