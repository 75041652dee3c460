"""The page of results, made from records and never typed by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from reproduction.catalogue import PAPER
from reproduction.record import Record
from reproduction.runner import Experiment, Results
from reproduction.suite import SUITE, picture
from reproduction.summary import Panel, Plot, Summary, Table
from selfexpress.errors import DataError

# Points a PNG's inch has; small files matter more than print.
_DPI = 80
_PANEL_SIZE = (3.6, 2.7)
_PICTURE_SIZE = (2.2, 2.4)

_INTRODUCTION = """\
# Reproduction of the paper

Every table and figure of *Learning a Self-Expressive Network for Subspace Clustering* \
(Zhang, You, Vidal, Li; CVPR 2021), by one command each. Ours are means and standard \
deviations over seeds; **the paper's figures stand in [brackets]**. This page is made \
from `reproduction/records/` by `python -m reproduction --document \
docs/reproduction.md`; nothing on it is typed by hand.

## Settings

The paper's: query and key networks of three hidden layers of 1,024 ReLU units and \
1,024 tanh outputs, Adam at 1e-3 with cosine decay, gradient clipping, batches of 100 \
and 100,000 steps (other ones for synthetic data, said there); gamma 200 and lambda \
0.9 for images (EMNIST 150 and 1.0), gamma 50 and lambda 0.9 for synthetic data; a \
3-nearest-neighbour graph of the coefficients for MNIST, Fashion-MNIST and EMNIST and \
|C| + |C|^T for CIFAR-10; 15 eigenvectors for MNIST and Fashion-MNIST. Where the paper \
is silent on the way of training we chose, and say so: batches of Figure 2 and Table \
1, steps and precision of Table 1, training images of Table 3. So we did where it is \
silent on the methods that SENet is compared with: graph and eigenvectors of spectral \
clustering, entries and lengths of rows of SSC-OMP and the scale of EnSC's gamma are \
those of an example that the authors of SSC-OMP and EnSC published (`run_mnist.py` in \
`ChongYou/subspace-clustering`), or their defaults. Nothing else is tuned for a table. \
Products of training on images are in bfloat16 where the GPU has it.

What the paper leaves out, from the script its authors released: the gradient's norm \
is clipped to 1e-3; weights start Kaiming-uniform, in the last layer Xavier-uniform; \
CIFAR-10 has 50,000 steps; EMNIST's rate stays constant; 1,000 coefficients of each \
row are kept and each row scaled to unit length; 10 eigenvectors for CIFAR-10 and 26 \
for EMNIST; k-means has 20 restarts; images are resized to 32 x 32, scattered with J = \
3 and L = 8, each map divided by its largest absolute value, and projected without \
centring on 500 components (EMNIST's mean is removed after that). These features give \
the paper's k-means row on MNIST (`python -m reproduction table3 --only \
method=k-means`).

Slips in the paper: three figures of Table 1 cannot be right (marked there), its CONN \
is the mean over classes and not the least, and the "SRE" of Table 2 is that of the \
graph and not of C, we think (explained there). Its figures are pictures without \
numbers in the text at hand, so that directions are compared.

Where a seed was run again, by a later version of the code, the newest run is shown; \
older ones stay in the records. Below a table stands what differs from the paper by \
more than three standard deviations of ours, the paper's value counting as one draw; \
figures of fewer than three seeds are not judged.
"""


def write_page(path: Path, results: Results) -> None:
    """Write the page, and its pictures into ``images`` beside it."""
    if path.suffix != ".md" or not path.parent.is_dir():
        raise DataError(
            f"The page must be a .md file in a folder that exists, got {path}. Use for "
            "example docs/reproduction.md."
        )
    if not any(results.folder.glob("*.jsonl")):
        raise DataError(
            f"The folder {results.folder} must hold records to make a page of, but has "
            "none. Run an experiment first, or name another folder by --records."
        )
    images = path.parent / "images"
    parts = [_INTRODUCTION]
    for experiment in PAPER.values():
        parts += _section(experiment, results, images)
    path.write_text("\n".join(parts))
    _write_suite(path.parent / "suite.md", results)


def _write_suite(path: Path, results: Results) -> None:
    """Write what docs/accuracy.md opens with: the suite's tables and picture."""
    found = [r for cell in SUITE.cells(False) for r in results.all_of(cell)]
    if not found:
        return
    image = path.parent / "images" / "suite.png"
    picture(results, image)
    parts = [_origin(SUITE, results, found)]
    parts += [f"![accuracy of every method on every set](images/{image.name})\n"]
    parts += _tables(SUITE.summarize(results, False))
    path.write_text("\n".join(parts))


def _section(experiment: Experiment, results: Results, images: Path) -> Iterator[str]:
    yield f"## {experiment.name}\n"
    yield f"{experiment.title}. `python -m reproduction {experiment.name}`\n"
    found = [r for cell in experiment.cells(False) for r in results.all_of(cell)]
    if not found:
        yield "Not run yet.\n"
        return
    yield _origin(experiment, results, found)
    summary = experiment.summarize(results, False)
    yield from _tables(summary)
    for plot in summary.plots:
        file = draw(plot, images)
        yield f"![{plot.name}](images/{file.name})\n"
    yield from (f"{remark}\n" for remark in summary.remarks)


def _tables(summary: Summary) -> Iterator[str]:
    for table in summary.tables:
        yield f"### {table.title}\n"
        yield markdown_table(table.headings, _shown(table)) + "\n"
        yield from (f"{note}\n" for note in table.notes)
        differences = table.differences()
        if differences:
            yield f"Beyond the seeds' spread: {'; '.join(differences)}.\n"


def _shown(table: Table) -> list[tuple[str, ...]]:
    return [tuple(str(entry) or " " for entry in row) for row in table.rows]


def _origin(experiment: Experiment, results: Results, found: list[Record]) -> str:
    """Say on what, when and how completely the experiment was run."""
    machines = sorted({record["hardware"]["name"] for record in found})
    days = sorted(record["date"][:10] for record in found)
    cells = experiment.cells(False)
    n_seeds = [len(results.of(cell)) for cell in cells]
    text = f"{len(found)} runs on {', '.join(machines)}, {_range(days)}; "
    text += f"{_range(n_seeds)} seeds a setting."
    n_missing = sum(n == 0 for n in n_seeds)
    if n_missing:
        text += f" {n_missing} of {len(cells)} settings are not run yet."
    failures = [record["error"] for record in found if "error" in record]
    if failures:
        text += f" {len(failures)} runs failed, for example: {failures[0]}"
    return text + "\n"


def _range(values: Sequence[int] | Sequence[str]) -> str:
    least, most = min(values), max(values)
    return str(least) if least == most else f"{least} to {most}"


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown; columns of numbers are set right."""
    rule = [
        "---:" if all(is_number(row[place]) for row in rows) else "---"
        for place in range(len(headings))
    ]
    return "\n".join(
        f"| {' | '.join(entry.replace('|', chr(92) + '|') for entry in line)} |"
        for line in (headings, rule, *rows)
    )


def is_number(entry: str) -> bool:
    """Return whether an entry is a figure, or a place left empty for one."""
    return not entry.strip("- ") or entry.lstrip("-[")[:1].isdigit()


def draw(plot: Plot, folder: Path) -> Path:
    """Draw a plot, or its pictures with captions, as a PNG; return its file."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{plot.name}.png"
    parts = plot.pictures or plot.panels
    width, height = _PICTURE_SIZE if plot.pictures else _PANEL_SIZE
    n_columns = max(1, min(plot.n_columns, len(parts)))
    n_rows = max(1, -(-len(parts) // n_columns))
    size = (width * n_columns, height * n_rows)
    picture = Figure(figsize=size, layout="constrained")
    grid = picture.subplots(n_rows, n_columns, squeeze=False).ravel()
    for axes in grid[len(parts) :]:
        axes.set_axis_off()
    for axes, (caption, pixels) in zip(grid, plot.pictures, strict=False):
        axes.imshow(pixels, cmap="magma", vmin=0, vmax=255, interpolation="nearest")
        axes.set_title(caption, fontsize=8)
        axes.set_axis_off()
    for axes, panel in zip(grid, plot.panels, strict=False):
        _draw_panel(axes, panel)
    picture.savefig(file, dpi=_DPI)
    return file


def _draw_panel(axes: Axes, panel: Panel) -> None:
    for line in panel.lines:
        x, y = np.asarray(line.x), np.asarray(line.y)
        marker = "o" if len(x) <= 25 else None
        (drawn,) = axes.plot(x, y, label=line.name, marker=marker, markersize=3)
        if line.spread:
            spread, color = np.asarray(line.spread), drawn.get_color()
            axes.fill_between(x, y - spread, y + spread, color=color, alpha=0.2)
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
    axes.set_title(panel.title, fontsize=9)
    if panel.log_x:
        axes.set_xscale("log")
        first, last = axes.get_xlim()
        parts = (1, 2, 5) if last < 100 * first else (1,)
        axes.xaxis.set_major_locator(LogLocator(subs=parts))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.locator_params(axis="x", nbins=4)
    axes.xaxis.set_major_formatter("{x:,.12g}")
    if panel.log_y:
        axes.set_yscale("log")
    if panel.lines:
        axes.legend(fontsize=7, framealpha=0.5)  # what lies behind stays visible
    axes.grid(alpha=0.3)
