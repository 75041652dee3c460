"""One setting of an experiment with one seed, and how it is run."""

from __future__ import annotations

import json
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch

from reproduction.record import plain, provenance
from selfexpress.errors import SelfExpressError

Record = dict[str, Any]


@dataclass
class Context:
    """Where cells compute and keep what later cells can use again.

    Attributes
    ----------
    device : torch.device
    cache : Path
        Folder of features computed from images.
    memory : dict
        What cells of one run share, such as the features read last.
    """

    device: torch.device
    cache: Path
    memory: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What a cell found.

    Attributes
    ----------
    metrics : dict
        Plain numbers, lists and dicts of them.
    seconds : dict of str to float
        By stage.
    """

    metrics: dict[str, Any]
    seconds: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Cell(ABC):
    """One setting with one seed; subclasses add the settings as fields.

    Cells with equal settings and seed are the same, whatever experiment lists them:
    experiments share what they have in common.
    """

    task: ClassVar[str]
    seed: int = 0

    @property
    def is_timed(self) -> bool:
        """Whether seconds are what it is run for, so that nothing may run beside it."""
        return False

    @abstractmethod
    def run(self, context: Context) -> Outcome:
        """Compute the outcome."""

    @abstractmethod
    def label(self) -> str:
        """Say in a few ``name=value`` words which cell this is."""

    def settings(self) -> dict[str, Any]:
        """Return every setting but the seed, as plain JSON."""
        values = {key: value for key, value in asdict(self).items() if key != "seed"}
        result: dict[str, Any] = json.loads(json.dumps(values, default=plain))
        return result

    def fits(self, record: Record) -> bool:
        """Say whether a record of these settings was made as the cell is run today.

        Subclasses look at what a record says beyond them.
        """
        return bool(record["task"] == self.task)

    def selectable(self) -> dict[str, Any]:
        """Return the settings that ``--only`` may name."""
        return self.settings()


def run_cell(cell: Cell, context: Context) -> Record:
    """Run one cell and return its record; an error of ours is its result."""
    record: Record = {
        "task": cell.task,
        "seed": cell.seed,
        "settings": cell.settings(),
        **provenance(context.device),
    }
    start = time.perf_counter()
    seconds: dict[str, float] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            outcome = cell.run(context)
        except SelfExpressError as error:
            record["error"] = str(error)
        else:
            record["metrics"], seconds = outcome.metrics, outcome.seconds
    record["seconds"] = {**seconds, "cell": time.perf_counter() - start}
    record["warnings"] = sorted({str(warning.message) for warning in caught})
    return record


@contextmanager
def stage(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Add the seconds of a stage to ``seconds``, waiting for a GPU at its end."""
    start = time.perf_counter()
    yield
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - start
