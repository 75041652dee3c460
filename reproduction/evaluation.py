"""From a trained network and rows to coefficients, labels and scores.

A network is trained once and looked at many times: on the rows it was trained on, on
rows it never saw, at several steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from reproduction.presets import PAPER, ImagePreset, Recipe
from reproduction.runner import Context, stage
from selfexpress import metrics
from selfexpress.affinity.coefficients import embed_keys, sparse_coefficients
from selfexpress.affinity.graph import build_affinity
from selfexpress.estimators.senet import SENet
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.rows.sources import ArraySource
from selfexpress.spectral import spectral_clusters
from selfexpress.training.callbacks import Callback, TrainState

Array = NDArray[Any]

MOST_EDGES = 20_000_000


@dataclass(frozen=True)
class Clustering:
    """Coefficients of rows on each other, their graph, its clusters and embedding."""

    coefficients: sparse.csr_array
    affinity: sparse.csr_array
    labels: NDArray[np.int64]
    embedding: NDArray[np.float64]


class OfImages(Protocol):
    """What has a preset and a seed, such as a cell on images."""

    @property
    def preset(self) -> ImagePreset: ...
    @property
    def seed(self) -> int: ...


def train(
    recipe: Recipe,
    X: Array,
    *,
    n_clusters: int,
    seed: int,
    context: Context,
    callbacks: tuple[Callback, ...] = (),
) -> SENet:
    """Return the estimator with a recipe's settings, trained on all of ``X``."""
    model = SENet(
        n_clusters,
        **PAPER,
        **asdict(recipe),
        n_train_samples=len(X),
        n_cluster_samples=None,
        n_references=len(X),
        device=context.device,
        callbacks=callbacks,
        random_state=seed,
    )
    return model.fit(X)


def cluster(
    coefficients: sparse.csr_array,
    recipe: Recipe,
    *,
    n_clusters: int,
    seed: int,
    context: Context,
    seconds: dict[str, float] | None = None,
) -> Clustering:
    """Turn coefficients into a graph and labels, as a recipe says."""
    seconds = {} if seconds is None else seconds
    with stage(seconds, "affinity"):
        affinity = build_affinity(
            coefficients,
            kind=recipe.affinity,
            n_neighbors=recipe.n_neighbors,
            device=context.device,
        )
    with stage(seconds, "spectral"):
        clusters = spectral_clusters(
            affinity,
            n_clusters,
            n_eigenvectors=recipe.n_eigenvectors,
            n_init=recipe.n_init,
            seed=seed,
            device=context.device,
        )
    return Clustering(coefficients, affinity, clusters.labels, clusters.embedding)


def express(
    network: SelfExpressiveNetwork,
    X: Array,
    *,
    n_nonzero: int,
    context: Context,
    dtype: torch.dtype | None = None,
) -> sparse.csr_array:
    """Return the coefficients of unit rows on each other, none on itself.

    ``dtype`` is of their products; by default that of a fit.
    """
    source = ArraySource(X, device=context.device)
    keys = embed_keys(network, source, block_size=8192)
    return sparse_coefficients(
        network, source, keys, n_nonzero=n_nonzero, exclude_self=True, dtype=dtype
    )


def fitted_clustering(model: Any) -> Clustering:
    """Return what a fitted clusterer found."""
    return Clustering(
        model.coefficients_, model.affinity_matrix_, model.labels_, model.embedding_
    )


def plain_settings(model: Any) -> dict[str, Any]:
    """Return an estimator's settings, as far as a record can hold them."""
    known = (bool, int, float, str, type(None), tuple, torch.device)
    return {
        name: value
        for name, value in model.get_params(deep=False).items()
        if isinstance(value, known) and name != "callbacks"
    }


def merged_scores(
    cell: OfImages, affinity: sparse.csr_array, truth: Array, context: Context
) -> dict[str, float]:
    """Score the labels that SENet's own spectral step finds in a graph.

    It merges pieces, where a recipe's step is k-means in a number of eigenvectors.
    """
    clusters = spectral_clusters(
        affinity,
        cell.preset.n_clusters,
        n_eigenvectors="auto",
        n_init=cell.preset.recipe.n_init,
        seed=cell.seed,
        device=context.device,
    )
    return label_scores(clusters.labels, truth)


def scores(clustering: Clustering, truth: Array) -> dict[str, float]:
    """Score labels, coefficients and graph against the true classes."""
    return {
        **label_scores(clustering.labels, truth),
        **graph_scores(clustering.coefficients, clustering.affinity, truth),
    }


def label_scores(labels: Array, truth: Array) -> dict[str, float]:
    """Score labels against the true classes."""
    return {
        "accuracy": metrics.clustering_accuracy(labels, truth),
        "normalized_mutual_info": metrics.normalized_mutual_info(labels, truth),
        "adjusted_rand": metrics.adjusted_rand(labels, truth),
    }


def graph_scores(
    coefficients: sparse.csr_array, affinity: sparse.csr_array, truth: Array
) -> dict[str, float]:
    """Score coefficients and graph against the true classes.

    Wrong edges count by their weight, SRE counts every point the same. Both are left
    out for a graph as dense as its coefficients, of which SRE says the same in less
    time.
    """
    found = {"sre": metrics.subspace_preserving_error(coefficients, truth)}
    if affinity.nnz <= MOST_EDGES:
        found["wrong_edges"] = metrics.graph_error(affinity, truth)
        found["graph_sre"] = metrics.subspace_preserving_error(affinity, truth)
    return found


def objective_parts(
    coefficients: sparse.csr_array, X: Array, recipe: Recipe
) -> dict[str, float]:
    """Return the paper's L, L_rec and L_reg: sums over all rows, in float64."""
    matrix = coefficients.astype(np.float64)
    residual = np.asarray(X, dtype=np.float64) - matrix @ np.asarray(X, np.float64)
    reconstruction = float((residual**2).sum())
    l1_norm, squares = np.abs(matrix.data).sum(), (matrix.data**2).sum()
    penalty = float(recipe.l1_ratio * l1_norm + (1 - recipe.l1_ratio) / 2 * squares)
    return {
        "objective": recipe.gamma / 2 * reconstruction + penalty,
        "reconstruction": reconstruction,
        "penalty": penalty,
    }


class AtSteps(Callback):
    """Look at the network after some steps, outside the time of training.

    ``look`` gets the network; what it returned is ``found``, in order, and ``seconds``
    are to be taken off the time of training.
    """

    def __init__(
        self,
        steps: tuple[int, ...],
        look: Callable[[SelfExpressiveNetwork], dict[str, Any]],
    ) -> None:
        self.steps = frozenset(steps)
        self.look = look
        self.found: list[dict[str, Any]] = []
        self.seconds = 0.0

    def on_step_end(self, state: TrainState) -> None:
        """Look if this is one of the steps."""
        if state.step in self.steps:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            start = time.perf_counter()
            self.found.append({"step": state.step} | self.look(state.network))
            self.seconds += time.perf_counter() - start


class WithoutThreshold(Callback):
    """Keep the soft threshold at 0, where it is the identity."""

    def on_step_end(self, state: TrainState) -> None:
        """Undo what the step did to the threshold."""
        with torch.no_grad():
            state.network.threshold.zero_()


def thinned(history: dict[str, NDArray[np.float64]], n_points: int = 200) -> Any:
    """Return a training history at evenly spaced steps, each the mean since the last.

    Single batches scatter; a mean over what lies between is what one wants to see.
    """
    n_steps = len(history["objective"])
    ends = np.unique(np.linspace(0, n_steps, min(n_points, n_steps) + 1).astype(int))
    sizes = np.diff(ends)
    means = {
        name: (np.add.reduceat(values, ends[:-1]) / sizes).tolist()
        for name, values in history.items()
    }
    return {"step": ends[1:].tolist(), **means}
