"""Which graph is read: that of the coefficients, or similar rows with it.

Rows most alike tell the same story as the coefficients where more of their links stay
within clusters than of the coefficients' own: so it is for images and text, whose
coefficients spread over many rows. Where fewer do, as among subspaces that cross, or
faces under one light, they would mislead. The clusters are those that the coefficients
give, of some thousand rows where there are more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
from scipy import sparse
from torch import Tensor

from selfexpress.affinity.exact import Candidates, exact_coefficients
from selfexpress.affinity.graph import (
    build_affinity,
    expressed_alike,
    joined_graphs,
    share_within,
)
from selfexpress.affinity.similar import neighbor_graph
from selfexpress.config import ClusterConfig
from selfexpress.solvers.problem import ElasticNetConfig
from selfexpress.spectral import SpectralClusters, spectral_clusters

# Rows that each may be joined to where similar rows are read.
_N_SIMILAR = 10
# Rows that the choice is made on, at most, and of each cluster at least.
_MOST_TRIED, _ROWS_A_CLUSTER = 3000, 30
_N_CANDIDATES = 100
# How much a graph of similar rows counts beside that of rows expressed alike.
_OF_SIMILAR = 2.0
# How much larger the share of links within clusters must be.
_MARGIN = 0.02


@dataclass(frozen=True)
class GraphChoice:
    """The graph to read.

    Attributes
    ----------
    affinity : csr_array of shape (n, n)
    has_similar_rows : bool
    clusters : SpectralClusters, optional
        Of this graph, where they are known already.
    """

    affinity: sparse.csr_array
    has_similar_rows: bool
    clusters: SpectralClusters | None = None


def choose_graph(
    coefficients: sparse.csr_array,
    rows: Tensor,
    *,
    problem: ElasticNetConfig,
    config: ClusterConfig,
    seed: int,
) -> GraphChoice:
    """Build the graph of coefficients, with or without similar rows.

    Parameters
    ----------
    coefficients : csr_array of shape (n, n)
    rows : Tensor of shape (n, D)
        Of unit length.
    problem : ElasticNetConfig
        That the coefficients solve.
    config : ClusterConfig
    seed : int
    """
    device = rows.device
    build = partial(build_affinity, kind=config.affinity, device=device)
    of_coefficients = build(coefficients)
    tried, some = of_coefficients, rows
    wanted = 2 if isinstance(config.n_clusters, str) else config.n_clusters
    n_tried = max(_MOST_TRIED, _ROWS_A_CLUSTER * wanted)
    is_whole = len(rows) <= n_tried
    if not is_whole:
        some = rows[torch.arange(n_tried, device=device) * len(rows) // n_tried]
        local = replace(problem, is_local=True)
        found = exact_coefficients(some, local, Candidates(_N_CANDIDATES), judge=False)
        tried = build(found.expression.coefficients)
    clusters = spectral_clusters(
        tried,
        config.n_clusters,
        n_eigenvectors=config.n_eigenvectors,
        n_init=config.n_init,
        seed=seed,
        device=device,
    )
    similar = neighbor_graph(some, n_neighbors=_N_SIMILAR)
    by_degree = joined_graphs((1.0, similar))
    labels = clusters.labels
    if share_within(by_degree, labels) <= share_within(tried, labels) + _MARGIN:
        return GraphChoice(of_coefficients, False, clusters if is_whole else None)
    if not is_whole:
        similar = neighbor_graph(rows, n_neighbors=_N_SIMILAR)
    alike = expressed_alike(coefficients, device=device)
    return GraphChoice(joined_graphs((1.0, alike), (_OF_SIMILAR, similar)), True)
