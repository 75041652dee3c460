"""Cells of the study past the paper: SENet's own defaults, one thing changed."""

from __future__ import annotations

from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reproduction.evaluation import (
    express,
    graph_scores,
    label_scores,
    objective_parts,
    scores,
    train,
)
from reproduction.images import find_clusters
from reproduction.inputs import encoder_features, image_rows
from reproduction.presets import DEFAULTS, ImagePreset, preset_of
from reproduction.runner import Cell, Context, Outcome, stage
from selfexpress.datasets.loading import Dataset, load_dataset
from selfexpress.estimators.senet import SENet
from selfexpress.features.scattering import Scattering2D
from selfexpress.features.whitening import Whitening
from selfexpress.solvers.ensc import elastic_net_expression
from selfexpress.solvers.problem import ElasticNetConfig

Value = int | float | str | None
Changes = tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class Preparation:
    """From images to rows; encoder features have no images and start as they are."""

    # "scattering" or "pixels".
    kind: str = "scattering"
    # "whitened", principal components as they are ("centred", "uncentred"), or "none".
    projection: str = "whitened"
    # Most components kept; fewer where there are not as many.
    n_components: int | str = "auto"


@dataclass(frozen=True, kw_only=True)
class StudyCell(Cell):
    """SENet on a whole data set, its defaults but for ``changes``."""

    task: ClassVar[str] = "study"
    dataset: str
    preparation: Preparation = Preparation()
    # Arguments of :class:`~selfexpress.SENet`.
    changes: Changes = ()
    # Size of the random part that is used; None for all.
    n_rows: int | None = None

    @property
    def is_timed(self) -> bool:
        """Timed with the first seed, where nothing is changed."""
        is_default = not self.changes and self.preparation == Preparation()
        return self.seed == 0 and is_default

    def selectable(self) -> dict[str, Any]:
        """Return the settings that ``--only`` may name, with those changed."""
        return {**self.settings(), "changes": dict(self.changes)}

    def label(self) -> str:
        """Say which cell this is."""
        how = self.preparation
        return (
            f"dataset={self.dataset} rows={how.kind}-{how.projection}-"
            f"{how.n_components} changes={in_words(self.changes)}"
        )

    def run(self, context: Context) -> Outcome:
        """Fit and score."""
        seconds: dict[str, float] = {}
        with stage(seconds, "features"):
            rows, truth = study_rows(self, context)
        model = self._model(context, truth, **dict(self.changes)).fit(rows)
        seconds |= model.timings_ | {"fit": sum(model.timings_.values())}
        return Outcome(_found(model, truth), seconds)

    def _model(
        self, context: Context, truth: NDArray[np.int64], **changes: Any
    ) -> SENet:
        n_clusters = len(np.unique(truth))
        model = SENet(
            n_clusters, **DEFAULTS, device=context.device, random_state=self.seed
        )
        changed: SENet = model.set_params(**changes)
        return changed


@dataclass(frozen=True, kw_only=True)
class ReadingsCell(StudyCell):
    """One training, and its coefficients clustered in several ways.

    What differs between two of them is the clustering alone.
    """

    task: ClassVar[str] = "readings"
    # For each way, arguments of :class:`~selfexpress.SENet` that do not enter
    # training; one that does is an error.
    readings: tuple[Changes, ...]

    @property
    def is_timed(self) -> bool:
        """Never: it is run for its scores."""
        return False

    def run(self, context: Context) -> Outcome:
        """Train in the first fit, take the training up in the others, score each."""
        seconds: dict[str, float] = {}
        with stage(seconds, "features"):
            rows, truth = study_rows(self, context)
        found = {}
        with TemporaryDirectory() as folder:
            for reading in self.readings:
                changes = dict(self.changes + reading)
                model = self._model(context, truth, checkpoint=folder, **changes)
                model.fit(rows)
                found[in_words(reading)] = _found(model, truth)
                for name, passed in model.timings_.items():
                    seconds[name] = seconds.get(name, 0.0) + passed
        return Outcome(found, seconds)


def in_words(changes: Changes) -> str:
    """Return changes in one line; those of a reading name its scores in the record."""
    return ",".join(f"{name}:{value}" for name, value in changes) or "none"


def _found(model: SENet, truth: NDArray[np.int64]) -> dict[str, Any]:
    return {
        **label_scores(model.labels_, truth),
        **graph_scores(
            model.coefficients_, model.affinity_matrix_, truth[model.sample_indices_]
        ),
        "n_clusters": len(np.unique(model.labels_)),
        "objective": float(model.history_["objective"][-50:].mean()),
        "n_iter": model.n_iter_,
        "settings": dict(model.settings_),
    }


def study_rows(cell: StudyCell, context: Context) -> tuple[Tensor, NDArray[np.int64]]:
    """Return rows on the device and their classes; those made last stay in memory."""
    name = (cell.dataset, cell.preparation, cell.n_rows)
    if context.memory.get("study") != name:
        context.memory["study"] = name
        context.memory["study rows"] = _prepared(cell, context)
    rows: tuple[Tensor, NDArray[np.int64]] = context.memory["study rows"]
    return rows


def _prepared(cell: StudyCell, context: Context) -> tuple[Tensor, NDArray[np.int64]]:
    how = cell.preparation
    if cell.dataset == "cifar10":
        features, labels = encoder_features(preset_of("cifar10", False))
        start = torch.from_numpy(features).to(context.device)
    else:
        data = load_dataset(cell.dataset)
        assert isinstance(data, Dataset)
        labels = data.labels
        start = torch.from_numpy(np.array(data.samples)).to(context.device)
    if cell.n_rows is not None and cell.n_rows < len(start):
        chosen = np.random.default_rng(0).permutation(len(start))[: cell.n_rows]
        start, labels = start[torch.from_numpy(chosen).to(start.device)], labels[chosen]
    if how.kind == "scattering" and cell.dataset != "cifar10":
        start = Scattering2D().fit_transform(start)
    rows = start.reshape(len(start), -1).float()
    if how.projection == "none":
        return rows, labels
    projection = Whitening(
        how.n_components
        if isinstance(how.n_components, str)
        else min(how.n_components, rows.shape[1], len(rows)),
        whiten=how.projection == "whitened",
        center=how.projection == "centred",
    )
    return projection.fit_transform(rows), labels


@dataclass(frozen=True, kw_only=True)
class GapCell(Cell):
    """How far from the convex optimum a training ends, and what that does to labels.

    The network is trained on some images, and the optimum solved for on the same.
    """

    task: ClassVar[str] = "gap"
    # Its recipe says how to train.
    preset: ImagePreset
    n_train: int = 2000

    def label(self) -> str:
        """Say which cell this is."""
        recipe = self.preset.recipe
        return (
            f"optimizer={recipe.optimizer} batch_size={recipe.batch_size} "
            f"max_iter={recipe.max_iter} learning_rate={recipe.learning_rate}"
        )

    def run(self, context: Context) -> Outcome:
        """Solve, train, and score the training images and all."""
        preset, recipe = self.preset, self.preset.recipe
        rows = image_rows(preset, context)
        X = rows.X[rows.draw(self.n_train, self.seed)]
        seconds: dict[str, float] = {}
        with stage(seconds, "ensc"):
            exact = elastic_net_expression(
                torch.from_numpy(X).to(context.device),
                ElasticNetConfig(recipe.gamma, recipe.l1_ratio, tol=1e-4),
            )
            optimum = float(exact.objective.sum())
        model = train(
            recipe, X, n_clusters=preset.n_clusters, seed=self.seed, context=context
        )
        coefficients = express(model.network_, X, n_nonzero=len(X), context=context)
        reached = objective_parts(coefficients, X, recipe)["objective"]
        everything = find_clusters(self, model.network_, rows.X, context)
        found = {
            "objective": reached / len(X),
            "optimum": optimum / len(X),
            "gap": (reached - optimum) / optimum,
            "full": scores(everything, rows.labels),
        }
        return Outcome(found, seconds | {"training": model.timings_["training"]})
