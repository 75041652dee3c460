"""Progress on stderr: bars with rate and time left, and the stages of a fit by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from selfexpress import distributed
from selfexpress.estimators.senet import SENet
from selfexpress.training.callbacks import RateColumn

# Training has a bar of its own.
_TRAINING = "training"


def rows_bar(*, quiet: bool) -> Progress:
    """Return a bar that counts rows, with rate and time left."""
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
    """Name the stages of ``model.fit`` on stderr as they come, unless ``quiet``.

    Each stage after training is a line with the seconds that it takes.
    """
    if quiet or not distributed.is_main():
        yield
        return
    timed = model._timed

    @contextmanager
    def shown(stage: str) -> Iterator[None]:
        with _line(stage), timed(stage):
            yield

    # On the instance: its class must stay SENet, whose name reports show.
    model.__dict__["_timed"] = shown
    try:
        yield
    finally:
        del model.__dict__["_timed"]


@contextmanager
def _line(stage: str) -> Iterator[None]:
    if stage == _TRAINING:
        yield
        return
    with _spinner() as progress:
        task = progress.add_task(stage, total=1)
        yield
        progress.update(task, completed=1)


def _spinner() -> AbstractContextManager[Progress]:
    return Progress(
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
