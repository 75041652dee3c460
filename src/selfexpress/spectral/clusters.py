"""From an affinity to an embedding and labels.

Shapes: N samples, E eigenvectors.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from selfexpress.errors import DegenerateWarning
from selfexpress.spectral.eigenvectors import laplacian_eigenvectors
from selfexpress.spectral.k_means import k_means
from selfexpress.spectral.normalized_cut import normalized_cut, refine


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
        Dimension of the embedding; ``n_clusters`` unless given. "auto" tries a few
        around it, keeps the labels of smallest normalised cut and refines them.
    n_init : int
        Restarts of k-means; the best one is kept.
    seed : int
    device : torch.device or str
        Where eigenvectors and k-means are computed.

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
            "arbitrarily; raise n_neighbors or n_nonzero, or lower l1_ratio.",
            DegenerateWarning,
            stacklevel=3,
        )
    tried = _dimensions(n_eigenvectors, n_clusters, n_nodes=affinity.shape[0])
    eigenvalues, vectors = laplacian_eigenvectors(
        affinity, max(tried), seed=seed, device=device
    )
    candidates = []
    for dimension in tried:
        embedding = _unit_rows(vectors[:, :dimension])
        labels = _k_means(
            embedding, n_clusters, n_init=n_init, seed=seed, device=device
        )
        found = SpectralClusters(
            labels, embedding, eigenvalues[:dimension], n_components
        )
        candidates.append(found)
    best = candidates[0]
    if n_eigenvectors == "auto":
        best = min(
            candidates, key=lambda c: normalized_cut(affinity, c.labels, n_clusters)
        )
        best = replace(best, labels=refine(affinity, best.labels, n_clusters))
    _warn_of_empty_clusters(best.labels, n_clusters)
    return best


def _warn_of_empty_clusters(labels: NDArray[np.int64], n_clusters: int) -> None:
    n_found = len(np.unique(labels))
    if n_found < n_clusters:
        warnings.warn(
            f"There should be n_clusters={n_clusters} clusters, but the embedding has "
            f"only {n_found} places to be in, so that the others stay empty; lower "
            "n_clusters, or raise n_neighbors.",
            DegenerateWarning,
            stacklevel=4,
        )


def _dimensions(
    n_eigenvectors: int | str | None, n_clusters: int, *, n_nodes: int
) -> list[int]:
    """Return the dimensions of the embedding to try; the first wins a tie."""
    if n_eigenvectors != "auto":
        return [min(int(n_eigenvectors or n_clusters), n_nodes)]
    # In one dimension, rows of unit length are all the same.
    around = [n_clusters, max(2, n_clusters - 1), n_clusters + 1, n_clusters + 2]
    return [min(dimension, n_nodes) for dimension in around]


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
