"""``python -m reproduction``: the paper's tables and figures, and our benchmarks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from reproduction.benchmark import Measurement
from reproduction.catalogue import EXPERIMENTS, GROUPS, experiments
from reproduction.page import draw, is_number, write_page
from reproduction.record import RECORDS, ROOT
from reproduction.runner import (
    Cell,
    Context,
    Experiment,
    Progress,
    Results,
    parse_value,
    run_cells,
    select,
    with_seeds,
)
from reproduction.summary import Summary
from selfexpress.errors import ConfigError, SelfExpressError
from selfexpress.ops.devices import resolve_device

# What can be computed again; git ignores it.
CACHE = ROOT / ".reproduction-cache"


def main(words: Sequence[str] | None = None) -> None:
    """Run the command; what is wrong with it is one line and exit code 2."""
    options = parser().parse_args(words)
    try:
        code = reproduce(options)
    except (SelfExpressError, ValueError, OSError) as error:
        _say(f"error: {error}")
        code = 2
    sys.exit(code)


def parser() -> argparse.ArgumentParser:
    """Return the reader of the command line."""
    found = argparse.ArgumentParser(
        "python -m reproduction",
        description="Run experiments of the paper and print its figures beside ours. "
        "A finished cell (a setting with a seed) is recorded at once and never run "
        "again: an interrupted run goes on where it stopped. Cells that failed are "
        "tried again, benchmarks measured anew.",
        epilog="Example: python -m reproduction table1 --only n_samples=20,100",
    )
    add = found.add_argument
    groups = ", ".join(GROUPS)
    add("names", nargs="*", help=f"experiments, or {groups}; without one, a list")
    add("--seeds", type=int, help="runs of each setting; 3, or 1 if quick")
    add("--quick", action="store_true", help="a small version for a CPU, in minutes")
    add("--only", action="append", default=[], help="NAME=VALUE[,VALUE] of a cell")
    add("--set", action="append", default=[], help="NAME=VALUE for a benchmark")
    add("--device", default="auto", help="auto, cpu, cuda, cuda:1")
    add("--records", type=Path, help="folder of records, read and appended to")
    add("--cache", type=Path, default=CACHE, help="folder of features of images")
    add("--jobs", type=int, default=1, help="cells side by side, unless timed")
    add("--time-limit", type=float, help="seconds; start no cell that may end later")
    add("--show", action="store_true", help="run nothing, show what is recorded")
    add("--plan", action="store_true", help="run nothing, list the cells not yet run")
    add("--document", type=Path, help="run nothing, write this page from the records")
    return found


def reproduce(options: argparse.Namespace) -> int:
    """Do what the options say; return the exit code."""
    quick_records = CACHE / "quick-records"
    results = Results(options.records or (quick_records if options.quick else RECORDS))
    if options.document is not None:
        defaults = vars(parser().parse_args([]))
        kept = defaults | {"document": options.document, "records": options.records}
        if vars(options) != kept:
            raise ConfigError(
                "--document must stand without experiments and with no option but "
                "--records, as the page has all full ones. Leave the others out."
            )
        write_page(options.document, results)
        return 0
    if not options.names:
        _list_experiments()
        return 0
    chosen = experiments(options.names)
    cells = _cells(chosen, options)
    if options.plan:
        _print_plan(cells, results)
        return 0
    n_failed = 0
    if not options.show:
        progress = run_cells(
            cells,
            results,
            Context(resolve_device(options.device), options.cache),
            n_jobs=options.jobs,
            time_limit=options.time_limit,
            announce=_say,
        )
        _say(_report(progress, results))
        n_failed = progress.n_failed
    summaries = {e.name: e.summarize(results, options.quick) for e in chosen}
    _print(chosen, summaries, quick=options.quick)
    if not options.show:
        for file in _pictures(summaries, results.folder / "images"):
            _say(f"picture written to {file}")
    return 1 if n_failed else 0


def _cells(chosen: list[Experiment], options: argparse.Namespace) -> list[Cell]:
    """Return the cells of experiments, each once, all of one seed together."""
    changes = dict(text.partition("=")[::2] for text in options.set)
    values = {name: _frozen(parse_value(text)) for name, text in changes.items()}
    listed: list[Cell] = []
    for experiment in chosen:
        for cell in experiment.cells(options.quick):
            if isinstance(cell, Measurement):
                listed.append(cell.changed(values))
            elif changes:
                raise ConfigError(
                    f"--set must come with benchmarks, got it with {experiment.name}. "
                    "Leave it out: the settings of the paper's tables are fixed."
                )
            else:
                listed.append(cell)
    is_short = options.quick or any(isinstance(cell, Measurement) for cell in listed)
    n_default = 1 if is_short else 3
    n_seeds = n_default if options.seeds is None else options.seeds
    if n_seeds < 1:
        raise ConfigError(f"--seeds must be at least 1, got {n_seeds}. 3 is usual.")
    cells = select(with_seeds(list(dict.fromkeys(listed)), n_seeds), options.only)
    if not cells:
        raise ConfigError(
            f"--only must leave a cell to run, but {' '.join(options.only)} leaves "
            "none. Use --plan to see what there is."
        )
    return cells


def _frozen(value: object) -> object:
    """Return lists as tuples, which cells can be compared by."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _print(
    chosen: list[Experiment], summaries: dict[str, Summary], *, quick: bool
) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160)
    note = "quick, not comparable with the paper" if quick else "[paper's in brackets]"
    for experiment in chosen:
        console.print(f"{experiment.name}: {experiment.title}; {note}", markup=False)
        for table in summaries[experiment.name].tables:
            console.print(_grid(table.title, table.headings, table.rows))
            for line in table.notes:
                console.print(line, markup=False, highlight=False)
        # Remarks are about the full experiment.
        for line in () if quick else summaries[experiment.name].remarks:
            console.print(line, markup=False, highlight=False)


def _grid(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[object]]
) -> Grid:
    """Return a table for a terminal; columns of numbers are set right."""
    grid = Grid(title=escape(title), title_justify="left")
    for place, heading in enumerate(headings):
        is_right = all(is_number(str(row[place])) for row in rows)
        grid.add_column(escape(heading), justify="right" if is_right else "left")
    for row in rows:
        grid.add_row(*(escape(str(entry)) for entry in row))
    return grid


def _pictures(summaries: dict[str, Summary], folder: Path) -> Iterator[Path]:
    """Draw what there is to draw, and yield the files."""
    for summary in summaries.values():
        for plot in summary.plots:
            if plot.pictures or any(panel.lines for panel in plot.panels):
                yield draw(plot, folder)


def _list_experiments() -> None:
    rows = [(name, each.title) for name, each in EXPERIMENTS.items()]
    Console().print(_grid("Experiments", ("name", "what it shows"), rows))


def _print_plan(cells: list[Cell], results: Results) -> None:
    pending = [cell for cell in cells if not results.has(cell)]
    for cell in pending:
        print(f"{cell.task} {cell.label()} seed={cell.seed}")
    print(f"{len(pending)} of {len(cells)} cells to run")


def _report(progress: Progress, results: Results) -> str:
    text = (
        f"{progress.n_run} cells run, {progress.n_skipped} were finished before; "
        f"records in {results.folder}"
    )
    if progress.n_failed:
        text += f"; {progress.n_failed} failed"
    if progress.n_left:
        text += f"; {progress.n_left} left for want of time"
    return text


def _say(line: str) -> None:
    console = Console(stderr=True)
    console.print(line, markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
