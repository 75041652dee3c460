"""Appendix: losses, ACC and SRE by step on MNIST, Fashion-MNIST and CIFAR-10."""

from __future__ import annotations

from typing import Any

from selfexpress.experiments.cells import Cell
from selfexpress.experiments.images import ImageCell, curve_size, senet_cell
from selfexpress.experiments.presets import IMAGES
from selfexpress.experiments.runner import Experiment, Results
from selfexpress.experiments.summary import (
    Figure,
    Line,
    Panel,
    Plot,
    Summary,
    Table,
    line_over_seeds,
)

DATASETS = ("mnist", "fashion-mnist", "cifar10")
_LOSSES = {"objective": "L", "reconstruction": "L_rec", "penalty": "L_reg"}
_SCORES = {"accuracy": "ACC", "sre": "SRE"}
_PARTS = {"train": "training images", "full": "all images"}


def cell(dataset: str, is_quick: bool) -> ImageCell:
    """Return a data set's cell with 2,000 training images."""
    return senet_cell(dataset, curve_size(is_quick), is_quick)


def cells(is_quick: bool) -> list[Cell]:
    """Return the cells of seed 0."""
    return [cell(dataset, is_quick) for dataset in _datasets(is_quick)]


def summarize(results: Results, is_quick: bool) -> Summary:
    """Draw losses, accuracy and error by step; tabulate the ends."""
    plots, rows = [], []
    for dataset in _datasets(is_quick):
        found = [r["metrics"] for r in results.of(cell(dataset, is_quick))]
        if found:
            panels = (*_loss_panels(found), *_score_panels(found))
            plots.append(Plot(f"learning-curves-{dataset}", panels, n_columns=3))
            rows += _rows(IMAGES[dataset].title, found)
    table = Table("First and last", ("data", *_LOSSES.values()), tuple(rows))
    return Summary((table,) if rows else (), tuple(plots), _REMARKS)


def _datasets(is_quick: bool) -> tuple[str, ...]:
    return DATASETS[:1] if is_quick else DATASETS


def _loss_panels(found: list[dict[str, Any]]) -> list[Panel]:
    steps = found[0]["history"]["step"]
    return [
        Panel(
            title,
            "step",
            title,
            (line_over_seeds("batch", steps, [m["history"][key] for m in found]),),
            log_y=True,
        )
        for key, title in _LOSSES.items()
    ]


def _score_panels(found: list[dict[str, Any]]) -> list[Panel]:
    panels = []
    for key, title in _SCORES.items():
        lines: list[Line] = []
        for part, name in _PARTS.items():
            curves = [m[f"curve_{part}"] for m in found if m.get(f"curve_{part}")]
            if curves:
                steps = [look["step"] for look in curves[0]]
                values = [[look[key] for look in curve] for curve in curves]
                lines.append(line_over_seeds(name, steps, values))
        panels.append(Panel(title, "step", title, tuple(lines)))
    return panels


def _rows(title: str, found: list[dict[str, Any]]) -> list[tuple[str | Figure, ...]]:
    steps = found[0]["history"]["step"]
    return [
        (
            f"{title}, {text} {steps[place]:,}",
            *(
                Figure(tuple(m["history"][key][place] for m in found))
                for key in _LOSSES
            ),
        )
        for text, place in (("steps up to", 0), ("steps up to", -1))
    ]


_REMARKS = (
    "Losses are means a point over the batches between two marks. The paper shows "
    "pictures only; it reports L and L_rec to fall steadily and L_reg to rise quickly "
    "at first. ACC and SRE by step it shows for CIFAR-10.",
)

LEARNING_CURVES = Experiment(
    "learning-curves", "Losses, ACC and SRE by step (images)", cells, summarize
)
