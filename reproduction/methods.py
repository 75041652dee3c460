"""The methods that the paper ran, by name and with one interface.

Every method is a scikit-learn clusterer: ``fit_predict`` gives labels. k-means is
scikit-learn's own, spectral clustering has its graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import KMeans
from sklearn.neighbors import kneighbors_graph

from reproduction.presets import PAPER_METHODS
from selfexpress.affinity.graph import symmetrized
from selfexpress.config import require_choice
from selfexpress.errors import ConfigError
from selfexpress.estimators.ensc import EnSC
from selfexpress.estimators.esc import ESC
from selfexpress.estimators.ssc_omp import SSCOMP
from selfexpress.spectral.eigenvectors import laplacian_eigenvectors
from selfexpress.spectral.k_means import k_means_labels


class NeighborSpectral(ClusterMixin, BaseEstimator):
    """Spectral clustering as scikit-learn does it, of a graph of nearest neighbours.

    :class:`sklearn.cluster.SpectralClustering` factorises the graph, which ends for
    10,000 rows and not for 70,000; eigenvectors and k-means are this package's. As
    there, eigenvectors are divided by the roots of the degrees, and their rows are not
    scaled to unit length.

    Parameters
    ----------
    n_clusters : int
    n_neighbors : int
        Each row counts among its own, as in scikit-learn.
    n_init : int
        Restarts of k-means.
    device : str or torch.device
        Of eigenvectors and k-means.
    random_state : int

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
    """

    labels_: NDArray[np.int64]

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_neighbors: int = 10,
        n_init: int = 10,
        device: str | torch.device = "cpu",
        random_state: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_neighbors = n_neighbors
        self.n_init = n_init
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: None = None) -> Self:
        """Find neighbours, eigenvectors and clusters."""
        if self.n_neighbors < 2:
            raise ConfigError(
                "n_neighbors must be at least 2, as each row is its own first "
                f"neighbour, got {self.n_neighbors!r}. Use for example 10."
            )
        directed = kneighbors_graph(X, self.n_neighbors, include_self=True, n_jobs=-1)
        graph = symmetrized(directed)
        _, vectors = laplacian_eigenvectors(
            graph, self.n_clusters, seed=self.random_state, device=self.device
        )
        degree = graph.sum(axis=1)
        # The first one, whose entries are all the same, is 1.
        embedding = vectors * np.sqrt(degree.sum() / degree)[:, None]
        self.labels_ = k_means_labels(
            embedding,
            self.n_clusters,
            n_init=self.n_init,
            seed=self.random_state,
            device=self.device,
        )
        return self


METHODS: dict[str, Callable[..., ClusterMixin]] = {
    "k-means": KMeans,
    "spectral": NeighborSpectral,
    "ssc-omp": SSCOMP,
    "ensc": EnSC,
    "esc": ESC,
}


def make_method(
    name: str, n_clusters: int, *, seed: int, **settings: Any
) -> ClusterMixin:
    """Return an unfitted clusterer.

    Parameters
    ----------
    name : str
        A key of ``METHODS``.
    n_clusters : int
    seed : int
        Its ``random_state``.
    **settings
        Further arguments of the method's constructor.

    Raises
    ------
    ConfigError
        If there is no such method.
    """
    require_choice("method", name, METHODS)
    return METHODS[name](
        n_clusters=n_clusters, random_state=seed, **(PAPER_METHODS[name] | settings)
    )
