"""From an affinity to an embedding and labels.

Shapes: N samples, E eigenvectors.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import eigsh
from sklearn.cluster import KMeans

from selfexpress.errors import DegenerateWarning

# Up to here a dense eigen-decomposition is faster than an iterative one.
_DENSE_SIZE = 800

# Relative; k-means sees no difference below it, and the last digits cost most.
_EIGENVALUE_TOLERANCE = 1e-7


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
    n_eigenvectors: int | None = None,
    n_init: int = 20,
    seed: int = 0,
) -> SpectralClusters:
    """Cluster the nodes of a graph by normalised spectral clustering.

    Parameters
    ----------
    affinity : csr_array of shape (N, N)
        Symmetric and non-negative.
    n_clusters : int
    n_eigenvectors : int, optional
        Dimension of the embedding; ``n_clusters`` unless given.
    n_init : int
        Restarts of k-means; the best one is kept.
    seed : int

    Returns
    -------
    SpectralClusters

    Warns
    -----
    DegenerateWarning
        If the graph has more connected components than ``n_clusters``.
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
    n_wanted = min(n_eigenvectors or n_clusters, affinity.shape[0])
    eigenvalues, vectors = laplacian_eigenvectors(affinity, n_wanted, seed=seed)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    embedding = vectors / np.where(norms > 0, norms, 1)
    k_means = KMeans(n_clusters, n_init=n_init, random_state=seed).fit(embedding)
    labels = k_means.labels_.astype(np.int64)
    return SpectralClusters(labels, embedding, eigenvalues, n_components)


def laplacian_eigenvectors(
    affinity: sparse.csr_array, n_eigenvectors: int, *, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the smallest eigenvalues of the normalised Laplacian and their vectors.

    The Laplacian is ``I - D^{-1/2} A D^{-1/2}``; an isolated node counts as one with
    eigenvalue 1. Signs are fixed so that the entry of largest size is positive.

    Connected components are solved one by one. Together they would have eigenvalue 0
    as often as there are components, and an iterative solver misses copies.
    """
    degree = np.asarray(affinity.sum(axis=1), dtype=np.float64).ravel()
    scale = sparse.diags_array(1 / np.sqrt(np.where(degree > 0, degree, 1)))
    adjacency = sparse.csr_array(scale @ affinity.astype(np.float64) @ scale)
    component = connected_components(affinity, directed=False)[1]
    sizes = np.bincount(component)
    largest_first = np.argsort(-sizes, kind="stable")
    # Each component of several nodes has one vector of eigenvalue 0, and any of them
    # could hold all the others; isolated nodes, of eigenvalue 1, only fill up.
    n_each = 1 + max(0, n_eigenvectors - int((sizes > 1).sum()))

    eigenvalues, eigenvectors = [], []
    for chosen in largest_first[:n_eigenvectors]:
        members = np.flatnonzero(component == chosen)
        part = adjacency[members][:, members]
        values, vectors = _leading_eigenvectors(part, min(n_each, len(members)), seed)
        padded = np.zeros((affinity.shape[0], len(values)))
        padded[members] = vectors
        eigenvalues.append(1 - values)
        eigenvectors.append(padded)
    values, vectors = np.concatenate(eigenvalues), np.hstack(eigenvectors)
    order = np.argsort(values, kind="stable")[:n_eigenvectors]
    return values[order], _fix_signs(vectors[:, order])


def _leading_eigenvectors(
    matrix: sparse.csr_array, n_wanted: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the largest eigenvalues of a symmetric matrix and their vectors."""
    n_nodes = matrix.shape[0]
    if n_nodes <= max(_DENSE_SIZE, 3 * n_wanted):
        values, vectors = np.linalg.eigh(matrix.toarray())
        return values[-n_wanted:], vectors[:, -n_wanted:]
    values, vectors = eigsh(
        matrix,
        k=n_wanted,
        which="LA",
        v0=np.random.default_rng(seed).uniform(-1, 1, n_nodes),
        ncv=min(n_nodes, 4 * n_wanted + 20),
        tol=_EIGENVALUE_TOLERANCE,
    )
    return values, vectors


def _fix_signs(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    largest = np.abs(vectors).argmax(axis=0)
    signs = np.sign(vectors[largest, np.arange(vectors.shape[1])])
    fixed: NDArray[np.float64] = vectors * signs
    return fixed
