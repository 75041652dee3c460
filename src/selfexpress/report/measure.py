"""A fitted model's matrices as the numbers and small pictures of a report.

Shapes: N samples, k clusters, P pixels.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from selfexpress import metrics
from selfexpress.ops.sparse import component_of_nodes
from selfexpress.report.record import (
    Array,
    Coefficients,
    Floats,
    GraphSummary,
    Integers,
)

_N_PIXELS = 600
_N_COMPONENT_SIZES = 10

# Connectivity solves an eigenvalue problem a class; above this it may take minutes.
_MOST_FOR_CONNECTIVITY = 20_000


def measure_coefficients(
    matrix: sparse.csr_array, labels: Integers, n_clusters: int
) -> Coefficients:
    """Draw and add up |C| by cluster."""
    entries = abs(sparse.csr_array(matrix)).tocoo()
    values = entries.data.astype(np.float64)
    sizes = np.bincount(labels, minlength=n_clusters)
    flat = labels[entries.row] * n_clusters + labels[entries.col]
    between = weighted_counts(flat, values, n_clusters)
    n_nonzero_of = np.bincount(entries.row[values > 0], minlength=len(labels))
    return Coefficients(
        picture=_picture(entries, values, labels).astype(np.float32),
        borders=np.concatenate([[0.0], np.cumsum(sizes) / len(labels)]),
        between=between,
        n_nonzero=int(n_nonzero_of.sum()),
        n_empty=int((n_nonzero_of == 0).sum()),
    )


def _picture(entries: sparse.coo_array, values: Floats, labels: Integers) -> Floats:
    """Return the mean of |C| over each of P x P tiles, sorted by label."""
    n_samples = len(labels)
    n_pixels = min(_N_PIXELS, n_samples)
    tile = np.empty(n_samples, dtype=np.int64)
    order = np.argsort(labels, kind="stable")
    tile[order] = np.arange(n_samples) * n_pixels // n_samples
    flat = tile[entries.row] * n_pixels + tile[entries.col]
    sums = weighted_counts(flat, values, n_pixels)
    sizes = np.bincount(tile, minlength=n_pixels)
    means: Floats = sums / np.outer(sizes, sizes)
    return means


def weighted_counts(flat: Integers, weights: Floats, side: int) -> Floats:
    """Add weights up in a square table whose places are counted row by row."""
    sums: Array = np.bincount(flat, weights, minlength=side**2)
    return sums.reshape(side, side)


def measure_graph(affinity: sparse.csr_array, eigenvalues: Floats) -> GraphSummary:
    """Count edges, neighbours and connected components."""
    graph = sparse.csr_array(affinity)
    component = component_of_nodes(graph)
    sizes = np.sort(np.bincount(component))[::-1]
    degrees = np.diff(graph.indptr)
    return GraphSummary(
        n_edges=int(graph.nnz // 2),
        n_isolated=int((degrees == 0).sum()),
        n_components=len(sizes),
        component_sizes=tuple(int(n) for n in sizes[:_N_COMPONENT_SIZES]),
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
    return scores
