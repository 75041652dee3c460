"""What may watch or end training, and a progress bar that does."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from torch import Tensor

from selfexpress.network import SelfExpressiveNetwork
from selfexpress.training.steps import RECORDED


@dataclass
class TrainState:
    """Where training stands. Set ``should_stop`` to end it after this step.

    Attributes
    ----------
    step : int
        Steps done.
    max_iter : int
        Steps to do.
    network : SelfExpressiveNetwork
        As it is now; read it, do not train it.
    history : Tensor of shape (max_iter, len(RECORDED))
        A row of ``RECORDED`` for each step done, on the training device.
    should_stop : bool
    """

    step: int
    max_iter: int
    network: SelfExpressiveNetwork
    history: Tensor
    should_stop: bool = False

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
        return self.should_stop or self.step == self.max_iter


class Callback:
    """Base of what is told about training; override what you need."""

    def on_train_begin(self, state: TrainState) -> None:
        """Hear that training starts."""

    def on_step_end(self, state: TrainState) -> None:
        """Hear that a step is done."""

    def on_train_end(self, state: TrainState) -> None:
        """Hear that training is over, also when an error ended it."""


class ProgressBar(Callback):
    """Steps, objective and time left, on stderr.

    Parameters
    ----------
    every : int
        Steps between updates of the objective, each of which waits for a GPU.
    """

    def __init__(self, every: int = 20) -> None:
        self.every = every

    def on_train_begin(self, state: TrainState) -> None:
        """Show the bar."""
        self._progress = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("objective {task.fields[objective]}"),
            TimeRemainingColumn(),
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
            self._progress.update(self._task, completed=state.step, objective=text)

    def on_train_end(self, state: TrainState) -> None:
        """Leave the bar where training ended."""
        self._progress.update(self._task, completed=state.step)
        self._progress.stop()
