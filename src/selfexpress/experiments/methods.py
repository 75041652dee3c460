"""The methods that the paper ran, by name and with one interface.

Every method is a scikit-learn clusterer: ``fit_predict`` gives labels. k-means and
spectral clustering are scikit-learn's own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from sklearn.base import ClusterMixin
from sklearn.cluster import KMeans, SpectralClustering

from selfexpress.config import require_choice
from selfexpress.estimators.ensc import EnSC
from selfexpress.estimators.esc import ESC
from selfexpress.estimators.senet import SENet
from selfexpress.estimators.ssc_omp import SSCOMP

METHODS: dict[str, Callable[..., ClusterMixin]] = {
    "k-means": partial(KMeans, n_init=10),
    "spectral": partial(SpectralClustering, affinity="nearest_neighbors"),
    "ssc-omp": SSCOMP,
    "ensc": EnSC,
    "esc": ESC,
    "senet": SENet,
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
    return METHODS[name](n_clusters=n_clusters, random_state=seed, **settings)
