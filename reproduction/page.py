"""The page of results, made from records and never typed by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from reproduction.catalogue import EXPERIMENTS
from reproduction.cells import Record
from reproduction.drawing import save_panels, save_pictures
from reproduction.runner import Experiment, Results
from reproduction.summary import Plot, Summary, Table
from reproduction.tables import markdown_table
from selfexpress.cli.outputs import require_writable
from selfexpress.errors import DataError

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
the paper's k-means row on MNIST (`python -m reproduction paper-features`).

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
    require_writable(path, suffixes=(".md",))
    if not any(results.folder.glob("*.jsonl")):
        raise DataError(
            f"The folder {results.folder} must hold records to make a page of, but has "
            "none. Run an experiment first, or name another folder by --records."
        )
    images = path.parent / "images"
    parts = [_INTRODUCTION]
    for experiment in EXPERIMENTS.values():
        parts += _section(experiment, results, images)
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


def draw(plot: Plot, folder: Path) -> Path:
    """Draw a plot into a folder and return its file."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{plot.name}.png"
    if plot.pictures:
        save_pictures(file, plot.pictures, n_columns=plot.n_columns)
    else:
        save_panels(file, plot.panels, n_columns=plot.n_columns)
    return file
