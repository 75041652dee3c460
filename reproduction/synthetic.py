"""Cells on synthetic subspaces: Figure 2, its learning curves, and Table 1."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from reproduction.evaluation import (
    AtSteps,
    cluster,
    express,
    label_scores,
    objective_parts,
    train,
)
from reproduction.presets import PAPER_METHODS, Recipe
from reproduction.runner import Cell, Context, Outcome, stage
from selfexpress import metrics
from selfexpress.datasets.synthetic import make_subspaces
from selfexpress.estimators.ensc import EnSC
from selfexpress.network import SelfExpressiveNetwork

Array = NDArray[Any]

N_SUBSPACES, DIMENSION = 5, 6
# Of the first experiment, by their names in its records.
HALVES = {"train": "training half", "unseen": "unseen half"}
# Rows and columns of a picture of |C|; each pixel is the mean of a tile.
PICTURE_SIDE = 125


@dataclass(frozen=True)
class Points:
    """Points on common subspaces to train on, and others to look at."""

    train: Array
    train_labels: Array
    unseen: Array
    unseen_labels: Array


@dataclass(frozen=True, kw_only=True)
class CurveCell(Cell):
    """The first synthetic experiment, looked at after some steps.

    Half of 5 x ``n_samples`` points in R^15 train the network, the other half is
    unseen.
    """

    task: ClassVar[str] = "synthetic-curves"
    recipe: Recipe
    # When to look.
    steps: tuple[int, ...]
    n_samples: int = 200
    n_features: int = 15
    # Whether the record of seed 0 holds pictures of the coefficients.
    has_pictures: bool = False

    def label(self) -> str:
        """Say which cell this is."""
        return f"max_iter={self.recipe.max_iter} schedule={self.recipe.schedule}"

    def run(self, context: Context) -> Outcome:
        """Train once and look at both halves at every step asked for."""
        points = self._points()
        look = AtSteps(self.steps, lambda network: self._look(network, points, context))
        model = train(
            self.recipe,
            _single(points.train),
            n_clusters=N_SUBSPACES,
            seed=self.seed,
            context=context,
            callbacks=(look,),
        )
        seconds = {"training": model.timings_["training"] - look.seconds}
        return Outcome({"curve": look.found}, seconds | {"looking": look.seconds})

    def _points(self) -> Points:
        data = make_subspaces(
            N_SUBSPACES,
            dimension=DIMENSION,
            n_features=self.n_features,
            n_samples=self.n_samples,
            random_state=self.seed,
        )
        order = np.random.default_rng(self.seed).permutation(len(data.X))
        first, second = np.split(order, 2)
        return Points(
            data.X[first], data.labels[first], data.X[second], data.labels[second]
        )

    def _look(
        self, network: SelfExpressiveNetwork, points: Points, context: Context
    ) -> dict[str, Any]:
        halves = {
            "train": (points.train, points.train_labels),
            "unseen": (points.unseen, points.unseen_labels),
        }
        found: dict[str, Any] = {}
        for name, (X, truth) in halves.items():
            coefficients = _express(network, X, context)
            found[name] = score_coefficients(self, coefficients, X, truth, context)
            if self.has_pictures and self.seed == 0:
                found[name]["picture"] = pack_picture(coefficients, truth)
        return found


@dataclass(frozen=True, kw_only=True)
class EquivalenceCell(Cell):
    """Table 1: SENet, SENet on unseen points, and the optimum that EnSC finds."""

    task: ClassVar[str] = "equivalence"
    recipe: Recipe
    # Points of each subspace.
    n_samples: int
    n_features: int = 9
    # Largest violation of the optimality conditions left in the optimum.
    tol: float = 1e-5

    def label(self) -> str:
        """Say which cell this is."""
        recipe = self.recipe
        return (
            f"n_samples={self.n_samples} batch_size={recipe.batch_size} "
            f"max_iter={recipe.max_iter}"
        )

    def run(self, context: Context) -> Outcome:
        """Solve, train, and score all three on the same points."""
        points = self._points()
        X, truth = points.train, points.train_labels
        seconds: dict[str, float] = {}
        with stage(seconds, "ensc"):
            exact = self._exact(X, context)
        model = train(
            self.recipe,
            _single(X),
            n_clusters=N_SUBSPACES,
            seed=self.seed,
            context=context,
        )
        seconds["training"] = model.timings_["training"]
        parts = {
            "ensc": (exact.coefficients_, X, truth),
            "senet": (_express(model.network_, X, context), X, truth),
            "unseen": (
                _express(model.network_, points.unseen, context),
                points.unseen,
                points.unseen_labels,
            ),
        }
        found: dict[str, Any] = {
            name: score_coefficients(self, *part, context)
            for name, part in parts.items()
        }
        optimum, reached = found["ensc"]["objective"], found["senet"]["objective"]
        found["gap"] = (reached - optimum) / optimum
        found["kkt_violation"] = float(exact.kkt_violation_.max())
        found["threshold"] = float(model.network_.threshold.detach())
        return Outcome(found, seconds)

    def _points(self) -> Points:
        train = make_subspaces(
            N_SUBSPACES,
            dimension=DIMENSION,
            n_features=self.n_features,
            n_samples=self.n_samples,
            random_state=self.seed,
        )
        # A seed that no training set has.
        unseen = make_subspaces(
            bases=train.bases, n_samples=self.n_samples, random_state=10_000 + self.seed
        )
        return Points(train.X, train.labels, unseen.X, unseen.labels)

    def _exact(self, X: Array, context: Context) -> EnSC:
        return EnSC(
            N_SUBSPACES,
            **PAPER_METHODS["ensc"]
            | {
                "gamma": self.recipe.gamma,
                "l1_ratio": self.recipe.l1_ratio,
                "tol": self.tol,
                "precision": "float64",
                "affinity": "symmetric",
            },
            device=context.device,
            random_state=self.seed,
        ).fit(X)


def score_coefficients(
    cell: CurveCell | EquivalenceCell,
    coefficients: sparse.csr_array,
    X: Array,
    truth: Array,
    context: Context,
) -> dict[str, Any]:
    """Return all of Table 1's figures for coefficients of rows on each other."""
    clustering = cluster(
        coefficients,
        cell.recipe,
        n_clusters=N_SUBSPACES,
        seed=cell.seed,
        context=context,
    )
    connectivities = class_connectivities(clustering.affinity, truth)
    return {
        **objective_parts(coefficients, X, cell.recipe),
        **label_scores(clustering.labels, truth),
        "sre": metrics.subspace_preserving_error(coefficients, truth),
        "connectivity": min(connectivities),
        "mean_connectivity": float(np.mean(connectivities)),
    }


def class_connectivities(affinity: sparse.csr_array, truth: Array) -> list[float]:
    """Return of every class what ``metrics.connectivity`` takes the least of."""
    members = [np.flatnonzero(truth == name) for name in np.unique(truth)]
    return [
        metrics.connectivity(affinity[m][:, m], np.zeros(len(m), dtype=np.int64))
        for m in members
    ]


def pack_picture(coefficients: sparse.csr_array, truth: Array) -> str:
    """Return |C| sorted by class as text: 8-bit pixels, compressed, base 64."""
    order = np.argsort(truth, kind="stable")
    n_rows = len(order)
    side = min(PICTURE_SIDE, n_rows)
    place = np.empty(n_rows, dtype=np.int64)
    place[order] = np.arange(n_rows) * side // n_rows
    entries = coefficients.tocoo()
    sums = np.zeros((side, side))
    np.add.at(sums, (place[entries.row], place[entries.col]), np.abs(entries.data))
    # Bright enough to see: a few large entries would leave the rest black.
    top = np.quantile(sums[sums > 0], 0.98) if sums.any() else 1.0
    pixels = np.clip(255 * sums / top, 0, 255).astype(np.uint8)
    return base64.b64encode(zlib.compress(pixels.tobytes(), 9)).decode()


def unpack_picture(text: str) -> NDArray[np.uint8]:
    """Return the pixels that :func:`pack_picture` wrote."""
    pixels = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)
    side = round(len(pixels) ** 0.5)
    return pixels.reshape(side, side)


def _express(
    network: SelfExpressiveNetwork, X: Array, context: Context
) -> sparse.csr_array:
    """Return all coefficients of points on each other, in the network's precision."""
    every, single = len(X), torch.float32
    return express(network, _single(X), n_nonzero=every, context=context, dtype=single)


def _single(X: Array) -> NDArray[np.float32]:
    """Return points in single precision, the network's."""
    return np.ascontiguousarray(X, dtype=np.float32)
