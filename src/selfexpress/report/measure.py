"""A fitted model's matrices as the numbers and small pictures of a report.

Shapes: N samples, k clusters, P pixels, E dimensions of the embedding, G members.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist

from selfexpress import metrics
from selfexpress.ops.sparse import component_of_nodes
from selfexpress.report.record import Array, Coefficients, Floats, Graph, Integers

_N_PIXELS = 600
_N_COMPONENT_SIZES = 10
# Connectivity solves an eigenvalue problem a class; above this it may take minutes.
_MOST_FOR_CONNECTIVITY = 20_000
# Rows whose distances to all centres are held at a time.
_BLOCK_ROWS = 16_384
_NO_DOUBT = 0.9


def measure_coefficients(
    matrix: sparse.csr_array, labels: Integers, n_clusters: int
) -> Coefficients:
    """Draw and add up |C| by cluster."""
    entries = abs(sparse.csr_array(matrix)).tocoo()
    sizes = np.bincount(labels, minlength=n_clusters)
    n_nonzero_of = np.bincount(entries.row[entries.data > 0], minlength=len(labels))
    return Coefficients(
        picture=picture_of(entries, labels, _N_PIXELS).astype(np.float32),
        borders=np.concatenate([[0.0], np.cumsum(sizes) / len(labels)]),
        between=_summed(entries, labels, n_clusters),
        n_nonzero=int(n_nonzero_of.sum()),
        n_empty=int((n_nonzero_of == 0).sum()),
    )


def picture_of(matrix: sparse.coo_array, labels: Integers, n_pixels: int) -> Floats:
    """Return the mean over each of P x P tiles, rows and columns sorted by label."""
    n_samples = len(labels)
    n_pixels = min(n_pixels, n_samples)
    tile = np.empty(n_samples, dtype=np.int64)
    tile[np.argsort(labels, kind="stable")] = (
        np.arange(n_samples) * n_pixels // n_samples
    )
    sizes = np.bincount(tile, minlength=n_pixels)
    means: Floats = _summed(matrix, tile, n_pixels) / np.outer(sizes, sizes)
    return means


def _summed(entries: sparse.coo_array, groups: Integers, n_groups: int) -> Floats:
    """Add entries up by the groups of their row and column."""
    flat = groups[entries.row] * n_groups + groups[entries.col]
    sums: Array = np.bincount(flat, entries.data, minlength=n_groups**2)
    return sums.reshape(n_groups, n_groups)


def measure_graph(affinity: sparse.csr_array, eigenvalues: Floats) -> Graph:
    """Count edges, neighbours and connected components."""
    graph = sparse.csr_array(affinity)
    sizes = np.sort(np.bincount(component_of_nodes(graph)))[::-1]
    degrees = np.diff(graph.indptr)
    return Graph(
        n_edges=int(graph.nnz // 2),
        n_isolated=int((degrees == 0).sum()),
        n_components=len(sizes),
        component_sizes=tuple(sizes[:_N_COMPONENT_SIZES].tolist()),
        degrees=degrees,
        eigenvalues=np.asarray(eigenvalues, dtype=np.float64),
    )


def measure_scores(
    labels: Integers,
    truth: Array,
    *,
    coefficients: sparse.csr_array,
    affinity: sparse.csr_array,
    in_graph: Integers,
) -> dict[str, float]:
    """Score labels, coefficients and graph against the true classes.

    ``in_graph`` are the samples that the rows of the two matrices stand for.
    """
    classes = truth[in_graph]
    scores = {
        "accuracy": metrics.clustering_accuracy(labels, truth),
        "normalized_mutual_info": metrics.normalized_mutual_info(labels, truth),
        "adjusted_rand": metrics.adjusted_rand(labels, truth),
        "subspace_preserving_error": metrics.subspace_preserving_error(
            coefficients, classes
        ),
        "graph_error": metrics.graph_error(affinity, classes),
    }
    has_pair = int(np.unique(classes, return_counts=True)[1].max()) > 1
    if has_pair and len(classes) <= _MOST_FOR_CONNECTIVITY:
        scores["connectivity"] = metrics.connectivity(affinity, classes)
    return {name: float(score) for name, score in scores.items() if np.isfinite(score)}


@dataclass(frozen=True, eq=False)
class Members:
    """Which members of a cluster are typical, and which could belong elsewhere.

    ``margins`` (N,) are ``(other - own) / (other + own)``, where ``own`` is the
    distance to the mean of the own cluster in the embedding and ``other`` the one to
    the nearest other mean: 1 at the own, 0 half-way between two, negative if another
    is nearer; 1 with a single cluster. ``central`` (k, G) have the smallest distance
    of their cluster, ``doubtful`` the smallest margins below 0.9; -1 where there are
    no more.
    """

    margins: Floats
    central: Integers
    doubtful: Integers


def measure_members(
    embedding: Floats, labels: Integers, n_clusters: int, count: int
) -> Members:
    """Measure how clearly each sample belongs to its cluster."""
    sizes = np.bincount(labels, minlength=n_clusters)
    sums = np.zeros((n_clusters, embedding.shape[1]))
    np.add.at(sums, labels, embedding)
    centres = sums / np.maximum(sizes, 1)[:, None]  # (k, E)
    distances, margins = np.empty((2, len(labels)), dtype=np.float32)
    for start in range(0, len(labels), _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        distance = cdist(embedding[rows], centres)  # (B, k)
        distance[:, sizes == 0] = np.inf
        own_place = np.arange(len(distance)), labels[rows]
        distances[rows] = own = distance[own_place]
        distance[own_place] = np.inf
        margins[rows] = _margin(own, distance.min(axis=1))
    doubtful = _first_of_each(margins, labels, n_clusters, count)
    return Members(
        margins,
        central=_first_of_each(distances, labels, n_clusters, count),
        doubtful=np.where(margins[doubtful] < _NO_DOUBT, doubtful, -1),
    )


def _margin(own: Floats, other: Floats) -> Floats:
    total = own + other
    # Two centres in one place tell nothing apart; infinity means no other cluster.
    margin = np.where(np.isinf(total), 1.0, 0.0)
    has_margin = np.isfinite(total) & (total > 0)
    np.divide(other - own, total, out=margin, where=has_margin)
    return margin


def _first_of_each(
    values: Floats, labels: Integers, n_clusters: int, count: int
) -> Integers:
    """Return the positions of the smallest values of each label, -1 where none."""
    order = np.lexsort((values, labels))
    starts = np.searchsorted(labels[order], np.arange(n_clusters + 1))
    places = starts[:-1, None] + np.arange(count)  # (k, G)
    is_member = places < starts[1:, None]
    return np.where(is_member, order[np.minimum(places, len(order) - 1)], -1)
