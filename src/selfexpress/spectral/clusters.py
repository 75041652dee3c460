"""From an affinity to an embedding and labels.

Shapes: N samples, E eigenvectors.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from selfexpress.errors import DegenerateWarning
from selfexpress.ops.sparse import component_of_nodes
from selfexpress.solvers.compiled import in_threads, one_thread
from selfexpress.spectral.counting import N_EIGENVECTORS, count_clusters
from selfexpress.spectral.eigenvectors import (
    SMALLEST_EIGENVALUE,
    laplacian_eigenvectors,
    unit_rows,
)
from selfexpress.spectral.information import Walk, merge_pieces
from selfexpress.spectral.k_means import k_means_labels, nested_k_means

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
# So many nodes take one thread as long as several that wait for one another.
_MOST_NODES_IN_ONE_THREAD = 20_000
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
    is_auto = n_eigenvectors == "auto"
    is_small = affinity.shape[0] <= _MOST_NODES_IN_ONE_THREAD
    with one_thread() if is_auto or is_small else nullcontext(1) as n_threads:
        return _found_clusters(
            affinity,
            n_clusters,
            None if is_auto else int(n_eigenvectors or 0),
            n_init=n_init,
            seed=seed,
            device=device,
            n_threads=n_threads,
        )


def _found_clusters(
    affinity: sparse.csr_array,
    n_clusters: int | str,
    dimension: int | None,
    *,
    n_init: int,
    seed: int,
    device: torch.device | str,
    n_threads: int,
) -> SpectralClusters:
    """Return clusters; found in the dimension given, in n_clusters if 0."""
    n_nodes = affinity.shape[0]
    is_auto = dimension is None
    component = component_of_nodes(affinity)
    find_eigenvectors = partial(
        laplacian_eigenvectors,
        affinity,
        seed=seed,
        component=component,
        device=device,
        n_threads=n_threads if is_auto else None,
    )
    known = None
    if isinstance(n_clusters, str):
        known = find_eigenvectors(min(N_EIGENVECTORS, n_nodes))
        n_clusters = count_clusters(
            affinity, *known, seed=seed, device=device, n_threads=n_threads
        )
    n_components = 1 + int(component.max())
    if n_components > n_clusters:
        warnings.warn(
            f"The affinity graph should have at most n_clusters={n_clusters} connected "
            f"components, but has {n_components}, so that some clusters are joined "
            "arbitrarily; raise n_nonzero or n_neighbors, or lower l1_ratio.",
            DegenerateWarning,
            stacklevel=4,
        )
    if dimension is None:
        dimension = _DIMENSIONS_A_CLUSTER * n_clusters
    dimension = min(dimension or n_clusters, n_nodes)
    if known is None or len(known[0]) < dimension:
        known = find_eigenvectors(dimension)
    eigenvalues, vectors = known[0][:dimension], known[1][:, :dimension]
    is_whole = n_components <= n_clusters
    is_plain = _are_plain(eigenvalues, n_clusters, is_whole=is_whole)
    if is_auto and is_plain:
        eigenvalues, vectors = eigenvalues[:n_clusters], vectors[:, :n_clusters]
    embedding = unit_rows(vectors)
    if not is_auto:
        labels = k_means_labels(
            embedding, n_clusters, n_init=n_init, seed=seed, device=device
        )
    elif is_plain:
        labels = nested_k_means(
            embedding,
            [n_clusters],
            n_init=n_init,
            seed=seed,
            device=device,
            n_threads=n_threads,
        )[0]
    else:
        most = max(n_clusters, min(_MOST_PIECES, n_nodes // 2))
        numbers = sorted({min(m * n_clusters, most) for m in _PIECES_A_CLUSTER})
        pieces = nested_k_means(
            embedding,
            numbers,
            n_init=max(1, round(_RESTARTS_FOR_PIECES * n_init)),
            seed=seed,
            device=device,
            n_threads=n_threads,
        )
        walk = Walk(affinity, device=device)
        labels = _merged_pieces(walk, pieces, n_clusters, n_threads=n_threads)
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
    walk: Walk, found: Sequence[NDArray[np.int64]], n_clusters: int, *, n_threads: int
) -> NDArray[np.int64]:
    """Return the clusters of most information, merged of more or of fewer pieces."""

    def merged(pieces: NDArray[np.int64]) -> tuple[NDArray[np.int64], float]:
        owner = merge_pieces(walk.joint(pieces, 1 + int(pieces.max())), n_clusters)
        return walk.refine(owner[pieces], n_clusters)

    labels, _ = max(in_threads(merged, found, n_threads), key=lambda result: result[1])
    return labels


def _warn_of_empty_clusters(labels: NDArray[np.int64], n_clusters: int) -> None:
    n_found = len(np.unique(labels))
    if n_found < n_clusters:
        warnings.warn(
            f"There should be n_clusters={n_clusters} clusters, but the embedding has "
            f"only {n_found} places to be in, so that the others stay empty; lower "
            "n_clusters, or raise n_nonzero or n_neighbors.",
            DegenerateWarning,
            stacklevel=5,
        )
