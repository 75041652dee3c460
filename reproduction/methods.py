"""The methods that SENet is compared with, by name, and their cells.

Every method is a scikit-learn clusterer: ``fit_predict`` gives labels. k-means is
scikit-learn's own, spectral clustering has its graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import KMeans
from sklearn.neighbors import kneighbors_graph

from reproduction.evaluation import (
    fitted_clustering,
    label_scores,
    merged_scores,
    plain_settings,
    scores,
)
from reproduction.inputs import image_rows
from reproduction.presets import PAPER_METHODS, ImagePreset, preset_of
from reproduction.record import Record
from reproduction.runner import Cell, Context, Outcome, stage
from selfexpress.affinity.graph import symmetrized
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

    ``n_neighbors`` counts each row among its own, as in scikit-learn.
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
    """Return an unfitted clusterer, a key of ``METHODS``, with settings of its own."""
    return METHODS[name](
        n_clusters=n_clusters, random_state=seed, **(PAPER_METHODS[name] | settings)
    )


_ON_UNSCALED_ROWS = ("ssc-omp",)
# Entries of SSC-OMP, where they are not ten.
_PURSUED_ROWS = {"mnist": 5}


@dataclass(frozen=True, kw_only=True)
class MethodCell(Cell):
    """One of the other methods."""

    task: ClassVar[str] = "methods"
    # Its recipe gives graph and spectral step of the self-expressive methods.
    preset: ImagePreset
    # A key of :data:`~reproduction.methods.METHODS`.
    method: str
    part: str = "full"
    # Of EnSC: SENet's own gamma, or that of EnSC's authors, which counts from where
    # the first coefficient appears.
    gamma_scale: str = "absolute"

    @property
    def is_timed(self) -> bool:
        """EnSC's time, of the first seed, is compared with SENet's."""
        return self.method == "ensc" and self.seed == 0

    def label(self) -> str:
        """Say which cell this is."""
        scale = "" if self.gamma_scale == "absolute" else f" gamma={self.gamma_scale}"
        return (
            f"dataset={self.preset.dataset} method={self.method} part={self.part}"
            f"{scale}"
        )

    def arguments(self) -> dict[str, Any]:
        """Return the settings of the method itself."""
        settings = method_settings(self.method, self.preset)
        if self.method == "ensc":
            settings["gamma_scale"] = self.gamma_scale
        return settings

    def fits(self, record: Record) -> bool:
        """Say whether a record is of the method with today's settings."""
        used = record.get("metrics", {}).get("estimator", {})
        return used.items() >= self.arguments().items() or "error" in record

    def run(self, context: Context) -> Outcome:
        """Fit the method and score its labels, coefficients and graph."""
        rows = image_rows(self.preset, context)
        start = rows.n_first if self.part == "test" else 0
        X = rows.unscaled() if self.method in _ON_UNSCALED_ROWS else rows.X
        X, truth = X[start:], rows.labels[start:]
        settings = self.arguments()
        if self.method != "k-means":
            settings["device"] = context.device
        model = make_method(
            self.method, self.preset.n_clusters, seed=self.seed, **settings
        )
        seconds: dict[str, float] = {}
        with stage(seconds, "total"):
            model.fit(X)
        seconds |= getattr(model, "timings_", {})
        found: dict[str, Any] = {"estimator": plain_settings(model)}
        if not hasattr(model, "coefficients_"):
            return Outcome(found | label_scores(model.labels_, truth), seconds)
        found |= scores(fitted_clustering(model), truth)
        found["merged"] = merged_scores(self, model.affinity_matrix_, truth, context)
        return Outcome(found, seconds)


def ensc_cell(
    dataset: str, is_quick: bool, *, part: str = "full", gamma_scale: str = "absolute"
) -> MethodCell:
    """Return the cell of the exact method, which SENet is compared with."""
    return MethodCell(
        preset=preset_of(dataset, is_quick),
        method="ensc",
        part=part,
        gamma_scale=gamma_scale,
    )


def method_settings(method: str, preset: ImagePreset) -> dict[str, Any]:
    """Return the arguments of a method's constructor for a data set.

    EnSC has the gamma, l1_ratio, graph and spectral step of SENet, as in the paper;
    ESC the same graph and spectral step with 300 exemplars, the number the paper
    states for EMNIST. Of SSC-OMP and spectral clustering the paper states nothing:
    theirs are the settings that its rows were found with, see Table 3.
    """
    recipe = preset.recipe
    spectral = {"n_eigenvectors": recipe.n_eigenvectors, "n_init": recipe.n_init}
    graph = {"affinity": recipe.affinity, "n_neighbors": recipe.n_neighbors}
    penalty = {"gamma": recipe.gamma, "l1_ratio": recipe.l1_ratio}
    settings: dict[str, dict[str, Any]] = {
        "k-means": {},
        "spectral": {"n_neighbors": 5},
        "ssc-omp": {
            "n_nonzero": _PURSUED_ROWS.get(preset.dataset, 10),
            "normalize": False,
        },
        "ensc": {**penalty, **graph, **spectral, "n_nonzero": recipe.n_nonzero},
        "esc": {**penalty, "l1_ratio": 1.0, "n_exemplars": 300, **graph, **spectral},
    }
    return dict(settings[method])
