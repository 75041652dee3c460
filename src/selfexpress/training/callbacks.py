"""What is called while training runs: a progress bar, logs of every step."""

from __future__ import annotations

import csv
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text
from torch import Tensor

from selfexpress import distributed
from selfexpress.config import require_count
from selfexpress.errors import ConfigError, DataError
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.training.step import RECORDED


@dataclass
class TrainState:
    """Where training stands. Set ``should_stop`` to end it after this step.

    Attributes
    ----------
    step : int
        Steps done.
    max_iter : int
        Steps to do, or the most of them until ``schedule="adaptive"`` knows better.
    network : SelfExpressiveNetwork
        As it is now; read it, do not train it.
    history : Tensor of shape (most steps, len(RECORDED))
        A row of ``RECORDED`` for each step done, on the training device.
    should_stop : bool
    fall_start : int
        Steps before the learning rate falls, as far as that is known.
    """

    step: int
    max_iter: int
    network: SelfExpressiveNetwork
    history: Tensor
    should_stop: bool = False
    fall_start: int = 0

    @property
    def record(self) -> dict[str, Tensor]:
        """The last step's entries by name, still on the training device.

        ``objective``, ``reconstruction``, ``penalty``, ``learning_rate`` and
        ``threshold``. Reading a value (``float(...)``) waits for a GPU.
        """
        return dict(zip(RECORDED, self.history[self.step - 1], strict=True))

    @property
    def is_last(self) -> bool:
        """Whether no step follows."""
        return self.should_stop or self.step >= self.max_iter


class Callback:
    """Base of what is called while training runs; override what you need."""

    def on_train_begin(self, state: TrainState) -> None:
        """Called before the first step."""

    def on_step_end(self, state: TrainState) -> None:
        """Called after every step."""

    def on_train_end(self, state: TrainState) -> None:
        """Called when training is over, also when an error ended it."""


def require_callbacks(callbacks: object) -> list[Callback]:
    """Return an estimator's ``callbacks`` as a list; a ConfigError refuses others."""
    if callbacks is None:
        return []
    if not isinstance(callbacks, Sequence):
        raise ConfigError(
            f"callbacks must be a list of them, got {type(callbacks).__name__}. Use "
            "callbacks=[...]."
        )
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise ConfigError(
                f"callbacks must hold Callback objects, got {callback!r}. Derive its "
                "class from selfexpress.training.callbacks.Callback."
            )
    return list(callbacks)


class RateColumn(ProgressColumn):
    """How fast a bar moves, in a unit a second: "steps", for example."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        """Return the rate; nothing until it is known."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} {self.unit}/s")


class ProgressBar(Callback):
    """Steps, objective, rate and time left, on stderr.

    Parameters
    ----------
    every : int
        Steps between updates of the objective, each of which waits for a GPU.
    """

    def __init__(self, every: int = 20) -> None:
        require_count("every", every, advice="Use for example 20.")
        self.every = every

    def on_train_begin(self, state: TrainState) -> None:
        """Show the bar."""
        self._progress = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("objective {task.fields[objective]}"),
            RateColumn("steps"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=Console(stderr=True),
        )
        self._progress.start()
        self._task = self._progress.add_task(
            "", total=state.max_iter, completed=state.step, objective="..."
        )

    def on_step_end(self, state: TrainState) -> None:
        """Move the bar, now and then with the objective."""
        if state.step % self.every == 0 or state.step == state.max_iter:
            text = f"{float(state.record['objective']):.4f}"
            self._progress.update(
                self._task, completed=state.step, total=state.max_iter, objective=text
            )

    def on_train_end(self, state: TrainState) -> None:
        """Leave the bar where training ended."""
        self._progress.update(self._task, completed=state.step)
        self._progress.stop()
        # A fitted estimator holds its callbacks, and is copied or pickled with them.
        del self._progress


class HistoryLogger(Callback, ABC):
    """Base of what keeps the entries of every step somewhere.

    Steps are written some at a time, because reading them waits for a GPU. A training
    that was resumed is logged from its first step on, and one that went back to a
    checkpoint logs the steps again that it takes again. Of many processes the first
    one logs.

    Parameters
    ----------
    every : int
        Steps between two times that entries are written.
    """

    def __init__(self, every: int = 100) -> None:
        require_count("every", every, advice="Use for example 100.")
        self.every = every

    @abstractmethod
    def open(self) -> None:
        """Begin a log, in place of an older one."""

    @abstractmethod
    def write(self, steps: range, rows: list[list[float]]) -> None:
        """Keep the entries of some steps, which count from 1."""

    @abstractmethod
    def close(self) -> None:
        """End the log."""

    def on_train_begin(self, state: TrainState) -> None:
        """Begin the log, with what was done before a training was resumed."""
        self._n_written = 0
        if distributed.is_main():
            self.open()
            self._write_new(state)

    def on_step_end(self, state: TrainState) -> None:
        """Write what is new, now and then."""
        self._n_written = min(self._n_written, state.step - 1)
        if state.step % self.every == 0:
            self._write_new(state)

    def on_train_end(self, state: TrainState) -> None:
        """Write the rest."""
        if distributed.is_main():
            try:
                self._write_new(state)
            finally:
                self.close()

    def _write_new(self, state: TrainState) -> None:
        new = range(self._n_written + 1, state.step + 1)
        if new and distributed.is_main():
            self.write(new, state.history[new.start - 1 : new.stop - 1].tolist())
        self._n_written = state.step


class CSVLogger(HistoryLogger):
    """The entries of every step as lines of a CSV file.

    Columns are ``step``, ``objective``, ``reconstruction``, ``penalty``,
    ``learning_rate`` and ``threshold``. A training that went back to a checkpoint has
    some steps twice; the later line counts.

    Parameters
    ----------
    path : path
        Replaced if it is there.
    every : int
        Steps between two times that lines are written.

    Examples
    --------
    >>> import tempfile
    >>> from selfexpress import SENet, make_subspaces
    >>> from selfexpress.training.callbacks import CSVLogger
    >>> data = make_subspaces(3, dimension=2, n_features=10, n_samples=40,
    ...                       random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = CSVLogger(f"{folder}/steps.csv")
    ...     model = SENet(3, max_iter=200, hidden_sizes=(64,), n_embedding=64,
    ...                   affinity="symmetric", callbacks=[log],
    ...                   random_state=0).fit(data.X)
    ...     with open(f"{folder}/steps.csv") as file:
    ...         print(len(file.readlines()))
    201
    """

    def __init__(self, path: str | os.PathLike[str], every: int = 100) -> None:
        super().__init__(every)
        self.path = Path(path)

    def open(self) -> None:
        """Write the names of the columns."""
        with self._naming_the_file():
            self._file = self.path.open("w", newline="", encoding="utf-8")
        csv.writer(self._file).writerow(("step", *RECORDED))

    def write(self, steps: range, rows: list[list[float]]) -> None:
        """Append lines, so that they can be read while training goes on."""
        lines = ((step, *row) for step, row in zip(steps, rows, strict=True))
        with self._naming_the_file():
            csv.writer(self._file).writerows(lines)
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        file = self._file
        del self._file
        with self._naming_the_file():
            file.close()

    @contextmanager
    def _naming_the_file(self) -> Iterator[None]:
        """Say which file it is that cannot be written."""
        try:
            yield
        except OSError as error:
            raise DataError(
                f"{self.path} must be a file that takes a line for every step, but "
                f"{error.strerror}. Make room, or choose another place."
            ) from error


class TensorBoardLogger(HistoryLogger):
    """The entries of every step as curves for TensorBoard.

    Needs ``selfexpress[tensorboard]``. Look at them with ``tensorboard --logdir
    FOLDER``.

    Parameters
    ----------
    folder : path
        A run of its own for each training.
    every : int
        Steps between two times that curves are written.
    """

    def __init__(self, folder: str | os.PathLike[str], every: int = 100) -> None:
        super().__init__(every)
        self.folder = Path(folder)

    def open(self) -> None:
        """Begin a file of events in the folder."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ConfigError(
                "TensorBoardLogger needs the tensorboard package, which is not "
                "installed. Install it with `pip install selfexpress[tensorboard]`, or "
                "use CSVLogger."
            ) from error
        self._writer: Any = SummaryWriter(str(self.folder))

    def write(self, steps: range, rows: list[list[float]]) -> None:
        """Append points to the curves."""
        for step, row in zip(steps, rows, strict=True):
            for name, value in zip(RECORDED, row, strict=True):
                self._writer.add_scalar(f"training/{name}", value, step)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
        del self._writer
