"""What a terminal shows: tables, bars with rate and time left, stages of a fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

    from selfexpress.estimators.senet import SENet

# Stages with bars of their own.
_WITH_BAR = ("training", "coefficients")


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, title: str | None = None
) -> None:
    """Print a table, numbers to the right; words in it are left as they are."""
    from rich.console import Console
    from rich.table import Table

    rows = list(rows)
    table = Table(title=title)
    for heading, *entries in zip(headings, *rows, strict=True):
        is_number = all(entry[:1].isdigit() for entry in entries)
        table.add_column(heading, justify="right" if is_number else "left")
    for row in rows:
        table.add_row(*row)
    Console(markup=False, emoji=False, highlight=False).print(table)


def rows_bar(*, quiet: bool) -> Progress:
    """Return a bar on stderr that counts rows, with rate and time left."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from selfexpress import distributed
    from selfexpress.training.callbacks import RateColumn

    is_silent = quiet or not distributed.is_main()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn("rows"),
        TimeRemainingColumn(),
        TextColumn("left"),
        # Before Rich 14.3 a disabled bar still ends its line.
        console=Console(stderr=True, quiet=is_silent),
        disable=is_silent,
    )


@contextmanager
def shown_stages(model: SENet, *, quiet: bool) -> Iterator[None]:
    """Show the stages of ``model.fit`` on stderr as they come, unless ``quiet``.

    A stage without a bar of its own is a line with the seconds that it takes.
    """
    from selfexpress import distributed

    if quiet or not distributed.is_main():
        yield
        return
    timed = model._timed

    @contextmanager
    def shown(stage: str) -> Iterator[None]:
        has_bar = stage in _WITH_BAR[: 1 if model.refine is None else 2]
        with nullcontext() if has_bar else _line(stage), timed(stage):
            yield

    # On the instance: its class must stay SENet, whose name reports show.
    model.__dict__["_timed"] = shown
    try:
        yield
    finally:
        del model.__dict__["_timed"]


@contextmanager
def _line(stage: str) -> Iterator[None]:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(stage, total=1)
        yield
        progress.update(task, completed=1)
