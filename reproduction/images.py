"""Cells on image data: one trained network, looked at on every part of the data.

Table 2, Figure 3, Table 3, the times, the learning curves and the ablations are all
views of these cells, so that no network is trained twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from numpy.typing import NDArray

from reproduction import presets
from reproduction.evaluation import (
    AtSteps,
    Clustering,
    OfImages,
    WithoutThreshold,
    cluster,
    express,
    fitted_clustering,
    label_scores,
    merged_scores,
    plain_settings,
    scores,
    thinned,
    train,
)
from reproduction.inputs import ImageRows, image_rows
from reproduction.presets import ImagePreset, preset_of
from reproduction.runner import Cell, Context, Outcome, stage
from reproduction.timing import Meter
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.training.callbacks import Callback

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class ImageCell(Cell):
    """SENet trained on some images of the training part, applied to all others."""

    task: ClassVar[str] = "images"
    preset: ImagePreset
    # Images to train on, drawn at random from the training part.
    n_train: int
    # Whether the soft threshold is learned, or stays 0.
    learn_threshold: bool = True
    # Steps at which the network is scored on its training images.
    look_at: tuple[int, ...] = ()
    # Steps before the last at which it is scored on all images.
    look_at_all: tuple[int, ...] = ()

    def label(self) -> str:
        """Say which cell this is."""
        recipe = self.preset.recipe
        return (
            f"dataset={self.preset.dataset} n_train={self.n_train} "
            f"hidden={'x'.join(map(str, recipe.hidden_sizes))} "
            f"batch_size={recipe.batch_size} learn_threshold={self.learn_threshold}"
        )

    def run(self, context: Context) -> Outcome:
        """Train once; score the training images, the test part and the whole."""
        rows = image_rows(self.preset, context)
        index = rows.draw(self.n_train, self.seed)
        looks = {
            "train": self._look(self.look_at, rows, index, context),
            "full": self._look(self.look_at_all, rows, slice(None), context),
        }
        callbacks: list[Callback] = [look for look in looks.values() if look.steps]
        if not self.learn_threshold:
            callbacks.insert(0, WithoutThreshold())
        model = train(
            self.preset.recipe,
            rows.X[index],
            n_clusters=self.preset.n_clusters,
            seed=self.seed,
            context=context,
            callbacks=tuple(callbacks),
        )
        seconds = {f"fit_{name}": value for name, value in model.timings_.items()}
        seconds["training"] = seconds.pop("fit_training") - sum(
            look.seconds for look in looks.values()
        )
        found: dict[str, Any] = {
            "train": scores(fitted_clustering(model), rows.labels[index]),
            "history": thinned(model.history_),
            "estimator": plain_settings(model),
        }
        if rows.n_first < len(rows.X):
            part, truth = rows.X[rows.n_first :], rows.labels[rows.n_first :]
            clusters = find_clusters(self, model.network_, part, context)
            found["test"] = scores(clusters, truth)
            with stage(seconds, "predict"):
                assigned = model.predict(part)
            found["predict"] = label_scores(assigned, truth)
        everything = find_clusters(self, model.network_, rows.X, context, seconds)
        found["full"] = scores(everything, rows.labels)
        found["merged"] = merged_scores(self, everything.affinity, rows.labels, context)
        found |= {
            f"curve_{name}": look.found for name, look in looks.items() if look.steps
        }
        if self.look_at_all:
            last = {"step": self.preset.recipe.max_iter, **found["full"]}
            found["curve_full"].append(last)
        return Outcome(found, seconds)

    def _look(
        self, steps: tuple[int, ...], rows: ImageRows, index: Any, context: Context
    ) -> AtSteps:
        """Score some rows at some steps."""
        X, truth = rows.X[index], rows.labels[index]
        return AtSteps(
            steps, lambda net: scores(find_clusters(self, net, X, context), truth)
        )


@dataclass(frozen=True, kw_only=True)
class TimingCell(Cell):
    """Seconds of an image cell's stages, with nothing beside them.

    Every step of a training takes the same time, so that some are enough to tell what
    all of them take. The later stages are timed whole, with the network as it is then.
    """

    task: ClassVar[str] = "timing"
    preset: ImagePreset
    n_train: int
    # Steps that are timed.
    n_steps: int = 1000

    @property
    def is_timed(self) -> bool:
        """It is for nothing else."""
        return True

    def label(self) -> str:
        """Say which cell this is."""
        return f"dataset={self.preset.dataset} n_train={self.n_train}"

    def run(self, context: Context) -> Outcome:
        """Train for some steps, then cluster all images."""
        rows = image_rows(self.preset, context)
        meter = Meter(context.device)
        model = train(
            replace(self.preset.recipe, max_iter=self.n_steps),
            rows.X[rows.draw(self.n_train, self.seed)],
            n_clusters=self.preset.n_clusters,
            seed=self.seed,
            context=context,
            callbacks=(meter,),
        )
        seconds = {
            "step": meter.seconds_a_step,
            "training": meter.seconds_a_step * self.preset.recipe.max_iter,
        }
        find_clusters(self, model.network_, rows.X, context, seconds)
        return Outcome({"peak_bytes": meter.peak_bytes}, seconds)


def find_clusters(
    cell: OfImages,
    network: SelfExpressiveNetwork,
    X: Array,
    context: Context,
    seconds: dict[str, float] | None = None,
) -> Clustering:
    """Cluster rows by a network as a cell says; add the seconds of each stage."""
    seconds, preset = {} if seconds is None else seconds, cell.preset
    with stage(seconds, "inference"):
        coefficients = express(
            network, X, n_nonzero=preset.recipe.n_nonzero, context=context
        )
    return cluster(
        coefficients,
        preset.recipe,
        n_clusters=preset.n_clusters,
        seed=cell.seed,
        context=context,
        seconds=seconds,
    )


def senet_cell(dataset: str, n_train: int, is_quick: bool) -> ImageCell:
    """Return SENet's cell on a data set with the paper's settings.

    With 2,000 training images the cell also has the learning curves in it.
    """
    preset = preset_of(dataset, is_quick)
    cell = ImageCell(preset=preset, n_train=n_train)
    if n_train != curve_size(is_quick):
        return cell
    steps = preset.recipe.max_iter
    look_at = tuple(sorted({max(1, steps * part // 100) for part in _LOOK_AT}))
    look_at_all = (look_at[3], look_at[6]) if dataset == "cifar10" else ()
    return replace(cell, look_at=look_at, look_at_all=look_at_all)


def senet_cells(dataset: str, is_quick: bool) -> list[ImageCell]:
    """Return SENet's cells on a data set, one for every number of training images."""
    return [senet_cell(dataset, size, is_quick) for size in train_sizes(is_quick)]


def scores_of_all(cell: Cell) -> tuple[str, ...]:
    """Return where the metrics of a cell hold the scores of all images."""
    return ("full",) if isinstance(cell, ImageCell) else ()


def timing_cell(dataset: str, n_train: int, is_quick: bool) -> TimingCell:
    """Return the cell that tells the seconds of :func:`senet_cell`."""
    preset = preset_of(dataset, is_quick)
    n_steps = min(TimingCell.n_steps, preset.recipe.max_iter)
    return TimingCell(preset=preset, n_train=n_train, n_steps=n_steps)


# Percent of the steps at which a learning curve looks at the network.
_LOOK_AT = (1, 2, 5, 10, 20, 30, 40, 60, 80, 100)


def curve_size(is_quick: bool) -> int:
    """Return how many images the learning curves train on."""
    return 300 if is_quick else 2000


def train_sizes(is_quick: bool) -> tuple[int, ...]:
    """Return the numbers of training images of Table 2 and Figure 3."""
    return (150, 300) if is_quick else presets.TRAIN_SIZES
