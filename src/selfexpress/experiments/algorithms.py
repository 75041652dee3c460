"""Appendix: time a step, memory and accuracy of Algorithm 1 against Algorithm 2."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from selfexpress.experiments.evaluation import (
    cluster,
    express,
    make_senet,
    scores,
)
from selfexpress.experiments.images import preset_of
from selfexpress.experiments.inputs import image_rows
from selfexpress.experiments.presets import ALGORITHM_SIZES, ImagePreset
from selfexpress.experiments.records import peak_bytes
from selfexpress.experiments.runner import Cell, Context, Experiment, Outcome, Results
from selfexpress.experiments.summary import (
    Figure,
    Line,
    Panel,
    Plot,
    Row,
    Summary,
    Table,
    line_of_points,
)
from selfexpress.training.callbacks import Callback, TrainState

DATASET = "mnist"
# The paper's names of the two, by ours.
ALGORITHMS = {"naive": "Algorithm 1", "two_pass": "Algorithm 2"}
# Enough for the accuracy to tell a wrong gradient from a right one; the paper's
# 100,000 would take hours at the larger sizes and show the same.
_STEPS = 2000
_WARM_UP = 50


@dataclass(frozen=True, kw_only=True)
class AlgorithmCell(Cell):
    """Training with one of the two gradients, timed and weighed.

    Attributes
    ----------
    preset : ImagePreset
        Its recipe names the algorithm.
    n_train : int
    """

    task: ClassVar[str] = "algorithms"
    preset: ImagePreset
    n_train: int

    def label(self) -> str:
        """Say which cell this is."""
        return f"algorithm={self.preset.recipe.algorithm} n_train={self.n_train}"

    def run(self, context: Context) -> Outcome:
        """Train on images of the training part, cluster the test part."""
        rows = image_rows(self.preset, context)
        order = np.random.default_rng(self.seed).permutation(rows.n_first)
        index = np.sort(order[: self.n_train])
        meter = _Meter(context.device)
        model = make_senet(
            self.preset.recipe,
            n_clusters=self.preset.n_clusters,
            n_samples=len(index),
            seed=self.seed,
            device=context.device,
            callbacks=(meter,),
        )
        model.fit(rows.X[index])
        part, truth = rows.X[rows.n_first :], rows.labels[rows.n_first :]
        recipe, device = self.preset.recipe, context.device
        clustering = cluster(
            express(model.network_, part, n_nonzero=recipe.n_nonzero, device=device),
            recipe,
            n_clusters=self.preset.n_clusters,
            seed=self.seed,
            device=device,
            seconds={},
        )
        found = {
            "step_milliseconds": 1000 * meter.seconds_a_step,
            "peak_bytes": meter.peak_bytes,
            "objective": float(model.history_["objective"][-100:].mean()),
            "test": scores(clustering, truth),
        }
        return Outcome(found, dict(model.timings_))


class _Meter(Callback):
    """Seconds a step after the first ones, and the most memory training took."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.peak_bytes = 0
        self.seconds_a_step = float("nan")
        self._start_bytes = _restart_peak(device)
        self._start, self._first = 0.0, 0

    def on_step_end(self, state: TrainState) -> None:
        """Start the clock after the warm-up, stop it after the last step."""
        is_first = state.step == min(_WARM_UP, state.max_iter - 1)
        if not is_first and state.step != state.max_iter:
            return
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        now = time.perf_counter()
        if is_first:
            self._start, self._first = now, state.step
        else:
            self.seconds_a_step = (now - self._start) / (state.step - self._first)
            self.peak_bytes = _peak(self.device) - self._start_bytes


def _restart_peak(device: torch.device) -> int:
    """Forget earlier peaks; return what is in use now."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return int(torch.cuda.memory_allocated(device))
    try:
        # Linux sets the peak of resident memory back to what is resident now.
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return 0
    return _peak(device)


def _peak(device: torch.device) -> int:
    """Return the most memory in use since the peak was restarted."""
    status = Path("/proc/self/status")
    if device.type == "cuda" or not status.is_file():
        return peak_bytes(device)
    found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
    return 1024 * int(found.group(1)) if found else peak_bytes(device)


def cell(algorithm: str, n_train: int, is_quick: bool) -> AlgorithmCell:
    """Return the cell of an algorithm and a number of training images."""
    preset = preset_of(DATASET, is_quick)
    recipe = replace(
        preset.recipe,
        algorithm=algorithm,
        block_size=100 if is_quick else 1000,
        max_iter=100 if is_quick else _STEPS,
    )
    return AlgorithmCell(preset=replace(preset, recipe=recipe), n_train=n_train)


def sizes(is_quick: bool) -> tuple[int, ...]:
    """Return the numbers of training images."""
    return (200, 600) if is_quick else ALGORITHM_SIZES


def cells(is_quick: bool) -> list[Cell]:
    """Return the cells of seed 0."""
    return [
        cell(algorithm, n_train, is_quick)
        for n_train in sizes(is_quick)
        for algorithm in ALGORITHMS
    ]


def summarize(results: Results, is_quick: bool) -> Summary:
    """Tabulate and draw the three measures by size."""
    rows: list[Row] = [
        (
            f"{n_train:,}",
            name,
            *(
                Figure(
                    _values(results, algorithm, n_train, key, is_quick), digits=digits
                )
                for key, (_, digits) in _MEASURES.items()
            ),
        )
        for n_train in sizes(is_quick)
        for algorithm, name in ALGORITHMS.items()
    ]
    headings = ("trained on", "algorithm", *(title for title, _ in _MEASURES.values()))
    panels = tuple(
        Panel(title, "training images", title, lines, log_x=True)
        for key, (title, _) in _MEASURES.items()
        if (lines := _lines(results, key, is_quick))
    )
    plots = (Plot("algorithms", panels),) if panels else ()
    return Summary((Table("By size", headings, tuple(rows)),), plots, _REMARKS)


_MEASURES = {
    "step_milliseconds": ("ms a step", 2),
    "peak_bytes": ("memory, MiB", 0),
    "accuracy": ("ACC on test images", 3),
}


def _values(
    results: Results, algorithm: str, n_train: int, key: str, is_quick: bool
) -> tuple[float, ...]:
    path = ("test", key) if key == "accuracy" else (key,)
    scale = 2**20 if key == "peak_bytes" else 1
    values = results.metric(cell(algorithm, n_train, is_quick), *path)
    return tuple(value / scale for value in values)


def _lines(results: Results, key: str, is_quick: bool) -> tuple[Line, ...]:
    lines = []
    for algorithm, name in ALGORITHMS.items():
        found = {
            n: _values(results, algorithm, n, key, is_quick) for n in sizes(is_quick)
        }
        points = [(float(n), values) for n, values in found.items() if values]
        if points:
            lines.append(line_of_points(name, points))
    return tuple(lines)


_REMARKS = (
    f"Batches of 100, blocks of 1,000, {_STEPS:,} steps: accuracy is that of a short "
    "training, alike for both. Memory is what training takes at its peak, without what "
    "the process held before. The paper shows pictures only: Algorithm 2 flat in "
    "memory, slightly slower, equally accurate.",
)

ALGORITHMS_EXPERIMENT = Experiment(
    "algorithms", "Algorithm 1 against Algorithm 2 (MNIST)", cells, summarize
)
