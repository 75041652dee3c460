"""Appendix: seconds of training and inference by the number of training images."""

from __future__ import annotations

from reproduction.images import TimingCell, timing_cell, train_sizes
from reproduction.methods import ensc_cell
from reproduction.presets import IMAGES
from reproduction.published import TIMES, TIMES_ENSC
from reproduction.runner import Cell, Experiment, Results
from reproduction.summary import Figure, Summary, Table

DATASETS = ("mnist", "fashion-mnist", "cifar10")
_HEADINGS = ("data", "trained on", "training s", "inference s", "graph s", "spectral s")


def cells(is_quick: bool) -> list[Cell]:
    """Return the cells of seed 0."""
    return [
        cell
        for dataset in _datasets(is_quick)
        for cell in (
            *(timing_cell(dataset, size, is_quick) for size in train_sizes(is_quick)),
            ensc_cell(dataset, is_quick),
        )
    ]


def summarize(results: Results, is_quick: bool) -> Summary:
    """Compare seconds of training and of inference with the paper's."""
    rows: list[tuple[str | Figure, ...]] = []
    for dataset in _datasets(is_quick):
        title = IMAGES[dataset].title
        for size in train_sizes(is_quick):
            cell = timing_cell(dataset, size, is_quick)
            printed = (None, None) if is_quick else TIMES[dataset][size]
            names = ("training", "inference", "affinity", "spectral")
            figures = (
                Figure(results.metric(cell, "seconds", name), paper, digits=1)
                for name, paper in zip(names, (*printed, None, None), strict=True)
            )
            rows.append((title, f"{size:,}", *figures))
        ensc = results.metric(ensc_cell(dataset, is_quick), "seconds", "coefficients")
        total = None if is_quick else TIMES_ENSC[dataset]
        rows.append((title, "EnSC", Figure(ensc, total, digits=1), "", "", ""))
    table = Table("Seconds", _HEADINGS, tuple(rows), is_compared=False)
    return Summary((table,), remarks=(*_REMARKS, _machines(results, is_quick)))


def _datasets(is_quick: bool) -> tuple[str, ...]:
    return DATASETS[:1] if is_quick else DATASETS


def _machines(results: Results, is_quick: bool) -> str:
    names = {
        record["hardware"]["name"]
        for cell in cells(is_quick)
        for record in results.of(cell)
    }
    return f"Ours: {', '.join(sorted(names)) or 'not run yet'}."


_REMARKS = (
    "The paper's seconds are of a GeForce 1080Ti (EnSC of a Xeon E5-2630). Every step "
    f"takes the same time: seconds of training are those of {TimingCell.n_steps:,} "
    "steps, multiplied up to all of them. Inference is the coefficients of all images, "
    "as the paper says of its own; graph and spectral step are shown beside it. The "
    "paper's inference takes far longer where the graph is one of nearest neighbours: "
    "that graph may be in it. These stages are timed with the network as it is after "
    f"{TimingCell.n_steps:,} steps. EnSC's seconds are those of all its coefficients.",
)

TIMES_EXPERIMENT = Experiment(
    "times", "Seconds of training and inference", cells, summarize
)
