"""The normalised cut of a partition: what spectral clustering relaxes.

Shapes: N nodes, k clusters.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

_MAX_ROUNDS = 20


def normalized_cut(
    affinity: sparse.csr_array, labels: NDArray[np.int64], n_clusters: int
) -> float:
    """Return the sum over clusters of the share of their weight that leaves them.

    An empty cluster counts 1, as much as one that keeps nothing.
    """
    links = _links(affinity, labels, n_clusters)
    inside, volume = _inside_and_volume(links, labels)
    return float(n_clusters - (inside / np.where(volume > 0, volume, 1)).sum())


def refine(
    affinity: sparse.csr_array, labels: NDArray[np.int64], n_clusters: int
) -> NDArray[np.int64]:
    """Move nodes between clusters while that lowers the normalised cut.

    A round of kernel k-means with the kernel whose objective is the normalised cut:
    each node goes to the cluster whose mean is nearest. A round that raises the cut
    or empties a cluster is not taken.
    """
    degree = np.asarray(affinity.sum(axis=1), dtype=np.float64).ravel()
    degree = np.where(degree > 0, degree, 1)
    smallest = normalized_cut(affinity, labels, n_clusters)
    for _ in range(_MAX_ROUNDS):
        links = _links(affinity, labels, n_clusters)
        inside, volume = _inside_and_volume(links, labels)
        volume = np.where(volume > 0, volume, np.inf)
        distance = inside / volume**2 - 2 * links / (degree[:, None] * volume)
        moved: NDArray[np.int64] = distance.argmin(axis=1)
        cut = normalized_cut(affinity, moved, n_clusters)
        if len(np.unique(moved)) < len(np.unique(labels)) or cut >= smallest:
            break
        labels, smallest = moved, cut
    return labels


def _links(
    affinity: sparse.csr_array, labels: NDArray[np.int64], n_clusters: int
) -> NDArray[np.float64]:
    """Return the weight between every node and every cluster, (N, k)."""
    n_nodes = len(labels)
    membership = sparse.csr_array(
        (np.ones(n_nodes), labels, np.arange(n_nodes + 1)), shape=(n_nodes, n_clusters)
    )
    links: NDArray[np.float64] = (affinity @ membership).toarray()
    return links


def _inside_and_volume(
    links: NDArray[np.float64], labels: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the weight inside each cluster and the weight that touches it, (k,)."""
    n_clusters = links.shape[1]
    own = links[np.arange(len(labels)), labels]
    inside = np.bincount(labels, own, n_clusters).astype(np.float64)
    touching = links.sum(axis=1)
    volume = np.bincount(labels, touching, n_clusters).astype(np.float64)
    return inside, volume
