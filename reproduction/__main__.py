"""``python -m reproduction``: the paper's tables and figures beside our own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from reproduction.catalogue import EXPERIMENTS, cells_of, experiments
from reproduction.cells import Cell, Context
from reproduction.page import draw, write_page
from reproduction.places import default_cache, default_records
from reproduction.runner import Experiment, Progress, Results, run_cells
from reproduction.summary import Summary
from reproduction.tables import terminal_table
from selfexpress.errors import ConfigError, SelfExpressError
from selfexpress.ops.devices import resolve_device

Names = Annotated[
    list[str] | None,
    typer.Argument(help="Experiments, or all; without one they are listed."),
]


def reproduce(
    names: Names = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Runs of each setting: 3, or 1 if quick.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version for a CPU, in minutes.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Run only cells with NAME=VALUE[,VALUE]; may be repeated."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1.")] = "auto",
    records: Annotated[
        Path | None,
        typer.Option(help="Folder of records, read and appended to."),
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder for features computed from images.")
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(min=1, help="Cells side by side; those that are timed run alone."),
    ] = 1,
    time_limit: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds; start no cell that could end later."),
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Run nothing; show what the records say.")
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Run nothing; list the cells not yet run.")
    ] = False,
    document: Annotated[
        Path | None,
        typer.Option(help="Run nothing; write this Markdown page from the records."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, for machines.")
    ] = False,
) -> None:
    """Run experiments of the paper and print its figures beside ours.

    A finished cell (a setting with a seed) is recorded at once and never run again:
    an interrupted run goes on where it stopped. Cells that failed are tried again.
    Figures are drawn into the folder "images" among the records.

    Example: python -m reproduction table1 --only n_samples=20,100
    """
    results = Results(records or default_records(quick))
    if document is not None:
        where = (device, cache, jobs, time_limit)
        is_alone = where == ("auto", None, 1, None)
        if names or quick or seeds or only or show or plan or as_json or not is_alone:
            raise ConfigError(
                "--document must stand without experiments and with no option but "
                "--records, as the page has all full ones. Leave the others out."
            )
        write_page(document, results)
        return
    if not names:
        _list_experiments(as_json=as_json)
        return
    chosen = experiments(names)
    n_seeds = seeds or (1 if quick else 3)
    cells = cells_of(chosen, is_quick=quick, n_seeds=n_seeds, only=only or [])
    if plan:
        _print_plan(cells, results, as_json=as_json)
        return
    n_failed = 0
    if not show:
        context = Context(resolve_device(device), cache or default_cache())
        progress = run_cells(
            cells,
            results,
            context,
            n_jobs=jobs,
            time_limit=time_limit,
            announce=_announce(),
        )
        _announce()(_report(progress, results))
        n_failed = progress.n_failed
    summaries = {e.name: e.summarize(results, quick) for e in chosen}
    _print(chosen, summaries, as_json=as_json, quick=quick)
    if not show:
        for file in _pictures(summaries, results.folder / "images"):
            _announce()(f"picture written to {file}")
    if n_failed:
        raise typer.Exit(1)


def _print(
    chosen: list[Experiment],
    summaries: dict[str, Summary],
    *,
    as_json: bool,
    quick: bool,
) -> None:
    if as_json:
        plain = {name: summary.plain() for name, summary in summaries.items()}
        print(json.dumps({"quick": quick, "experiments": plain}))
        return
    console = Console(width=None if os.isatty(1) else 160)
    for experiment in chosen:
        note = (
            "quick, not comparable with the paper" if quick else "[paper's in brackets]"
        )
        console.print(f"{experiment.name}: {experiment.title}; {note}", markup=False)
        for table in summaries[experiment.name].tables:
            console.print(terminal_table(table.title, table.headings, table.rows))
            for line in table.notes:
                console.print(line, markup=False, highlight=False)
        # Remarks are about the full experiment.
        for line in () if quick else summaries[experiment.name].remarks:
            console.print(line, markup=False, highlight=False)


def _pictures(summaries: dict[str, Summary], folder: Path) -> Iterator[Path]:
    """Draw what there is to draw, and tell the files."""
    for summary in summaries.values():
        for plot in summary.plots:
            if plot.pictures or any(panel.lines for panel in plot.panels):
                yield draw(plot, folder)


def _list_experiments(*, as_json: bool) -> None:
    rows = [(e.name, e.title) for e in EXPERIMENTS.values()]
    if as_json:
        print(json.dumps({"experiments": dict(rows)}))
        return
    Console().print(terminal_table("Experiments", ("name", "what it shows"), rows))


def _print_plan(cells: list[Cell], results: Results, *, as_json: bool) -> None:
    pending = [cell for cell in cells if not results.has(cell)]
    if as_json:
        listed = [
            {"task": cell.task, "seed": cell.seed, "settings": cell.settings()}
            for cell in pending
        ]
        print(json.dumps({"cells": len(cells), "to_run": listed}))
        return
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


def _announce() -> Callable[[str], None]:
    console = Console(stderr=True)
    return lambda line: console.print(
        line, markup=False, highlight=False, soft_wrap=True
    )


def main() -> None:
    """Run the command; what is wrong with it is one line and exit code 2."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(reproduce)
    try:
        app(prog_name="python -m reproduction")
    except (SelfExpressError, ValueError, OSError) as error:
        Console(stderr=True).print(f"error: {error}", markup=False, soft_wrap=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
