"""Run cells, one setting with one seed each, and keep every result at once.

The record of a cell is on the disk before the next one starts, and a cell whose record
is there is not run again: an interrupted run goes on where it stopped. Nothing here
knows the paper.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import re
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from reproduction.record import (
    Record,
    append_record,
    plain,
    plain_copy,
    provenance,
    read_records,
)
from reproduction.summary import Summary
from selfexpress.errors import ConfigError, SelfExpressError

logger = logging.getLogger(__name__)


@dataclass
class Context:
    """Where cells compute and keep what later cells can use again."""

    device: torch.device
    # Folder of features computed from images.
    cache: Path
    # What cells of one run share, such as the features read last.
    memory: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What a cell found: plain numbers, lists and dicts of them; seconds by stage."""

    metrics: dict[str, Any]
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Cell(ABC):
    """One setting with one seed; subclasses add the settings as fields.

    Cells with equal settings and seed are the same, whatever experiment lists them:
    experiments share what they have in common.
    """

    # Names the file of records.
    task: ClassVar[str]
    # Whether a record makes a run unnecessary; benchmarks are measured anew.
    is_kept: ClassVar[bool] = True
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
        return plain_copy(values)

    def fits(self, record: Record) -> bool:
        """Say whether a record of these settings was made as the cell is run today."""
        return bool(record["task"] == self.task)

    def selectable(self) -> dict[str, Any]:
        """Return the settings that ``--only`` may name."""
        return self.settings()


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper, or a benchmark."""

    # As typed after ``python -m reproduction``.
    name: str
    title: str
    # From whether to be quick to the cells of seed 0.
    cells: Callable[[bool], Sequence[Cell]]
    # From results and whether they are the quick ones to tables and plots.
    summarize: Callable[[Results, bool], Summary]


class Results:
    """The records of a folder, with one file for each task, by a cell's settings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._by_key: dict[str, list[Record]] = {}
        self._read: set[str] = set()

    def of(self, cell: Cell) -> list[Record]:
        """Return the records of a cell's settings that succeeded, one for each seed."""
        return [record for record in self.all_of(cell) if "error" not in record]

    def all_of(self, cell: Cell) -> list[Record]:
        """Return the newest record of every seed, also of runs that failed."""
        by_seed = {record["seed"]: record for record in self._runs(cell)}
        return [by_seed[seed] for seed in sorted(by_seed)]

    def has(self, cell: Cell) -> bool:
        """Return whether a cell need not be run; one that failed is run again."""
        return cell.is_kept and any(r["seed"] == cell.seed for r in self.of(cell))

    def metric(self, cell: Cell, *path: str, scale: float = 1) -> tuple[float, ...]:
        """Return one figure of every seed, found by its path in the metrics.

        Seconds are under "seconds", and only of cells that nothing ran beside. Figures
        are multiplied by ``scale``, 100 for percent.
        """
        values = (_value(record, path) for record in self.of(cell))
        return tuple(scale * value for value in values if value is not None)

    def metric_of_runs(self, cell: Cell, *path: str) -> dict[int, list[float]]:
        """Return one figure by seed, of all its runs: newer ones replace none here."""
        found: dict[int, list[float]] = {}
        for record in self._runs(cell):
            value = None if "error" in record else _value(record, path)
            if value is not None:
                found.setdefault(record["seed"], []).append(value)
        return found

    def add(self, cell: Cell, record: Record) -> None:
        """Keep a record, on the disk and in memory."""
        self._load(cell)
        append_record(self.folder / f"{cell.task}.jsonl", record)
        self._keep(plain_copy(record))

    def _load(self, cell: Cell) -> None:
        if cell.task not in self._read:
            self._read.add(cell.task)
            for record in read_records(self.folder / f"{cell.task}.jsonl"):
                settings = completed(record["settings"], cell)
                self._keep(record | {"settings": settings})

    def _runs(self, cell: Cell) -> list[Record]:
        """Return every record of a cell's settings, of all seeds, oldest first."""
        self._load(cell)
        found = self._by_key.get(_key(cell.task, cell.settings()), [])
        return [record for record in found if cell.fits(record)]

    def _keep(self, record: Record) -> None:
        key = _key(record["task"], record["settings"])
        self._by_key.setdefault(key, []).append(record)


def _value(record: Record, path: tuple[str, ...]) -> float | None:
    """Return the figure of a record at a path; None where it has none."""
    is_alone = record.get("n_jobs", 1) == 1
    value: Any = {**record["metrics"], "seconds": record["seconds"] if is_alone else {}}
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return None if value is None else float(value)


def _key(task: str, settings: Mapping[str, Any]) -> str:
    return json.dumps([task, settings], sort_keys=True)


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


@dataclass(frozen=True)
class Progress:
    """Cells run now, found finished, ended by an error, and not reached in time."""

    n_run: int
    n_skipped: int
    n_failed: int
    n_left: int


def run_cells(
    cells: Iterable[Cell],
    results: Results,
    context: Context,
    *,
    n_jobs: int = 1,
    time_limit: float | None = None,
    announce: Callable[[str], None] = logger.info,
) -> Progress:
    """Run the cells that have no record yet.

    Parameters
    ----------
    cells : iterable of Cell
    results : Results
        Where finished cells are found and new ones kept.
    context : Context
    n_jobs : int
        Processes that run cells side by side. Those that are timed run alone, at the
        end.
    time_limit : float, optional
        Seconds; a cell that could end after it is left out, judged by its other seeds
        or, where they have no record, by the longest one so far.
    announce : callable
        Called with a line about every cell.
    """
    results.folder.mkdir(parents=True, exist_ok=True)
    wanted = list(dict.fromkeys(cells))
    pending = [cell for cell in wanted if not results.has(cell)]
    run = _Run(results, announce, len(pending), n_jobs, time_limit)
    alone = [cell for cell in pending if n_jobs == 1 or cell.is_timed]
    together = [cell for cell in pending if cell not in alone]
    if together:
        _run_side_by_side(together, context, n_jobs, run)
    for cell in alone:
        if run.may_start(cell):
            run.keep(cell, run_cell(cell, context))
    n_left = len(pending) - run.n_run
    return Progress(run.n_run, len(wanted) - len(pending), run.n_failed, n_left)


class _Run:
    """What has been done of a run, and whether there is time for more."""

    def __init__(
        self,
        results: Results,
        announce: Callable[[str], None],
        n_pending: int,
        n_jobs: int,
        time_limit: float | None,
    ) -> None:
        self.n_run = self.n_failed = 0
        self._results, self._announce = results, announce
        self._n_pending, self._n_jobs = n_pending, n_jobs
        self._time_limit = time_limit
        self._start, self._longest = time.perf_counter(), 0.0
        self._warned: set[str] = set()

    def may_start(self, cell: Cell) -> bool:
        """Return whether a cell would end in time."""
        if self._time_limit is None:
            return True
        elapsed = time.perf_counter() - self._start
        return elapsed + self._expected(cell) <= self._time_limit

    def _expected(self, cell: Cell) -> float:
        """Return a cell's seconds in its other seeds, or else the longest so far."""
        n_beside = 1 if cell.is_timed else self._n_jobs
        seconds = [
            record["seconds"]["cell"]
            for record in self._results.all_of(cell)
            if record.get("n_jobs", 1) == n_beside
        ]
        return max(seconds, default=self._longest)

    def keep(self, cell: Cell, record: Record) -> None:
        """Add a record to the results and say so, and each of its warnings once."""
        self._results.add(cell, record)
        self._longest = max(self._longest, record["seconds"]["cell"])
        self.n_run += 1
        self.n_failed += "error" in record
        end = f"failed: {record['error']}" if "error" in record else "done"
        self._announce(
            f"[{self.n_run}/{self._n_pending}] {cell.task} {cell.label()} "
            f"seed={cell.seed} {record['seconds']['cell']:.1f} s {end}"
        )
        for warning in record["warnings"]:
            if warning not in self._warned:
                self._announce(f"warning: {warning}")
                self._warned.add(warning)


# Of a worker process; what its cells share stays with it.
_context: Context


def _run_side_by_side(
    cells: Sequence[Cell], context: Context, n_jobs: int, run: _Run
) -> None:
    """Run cells in processes, each with a context of its own.

    A GPU has room for several small trainings at once. Seconds of such cells are shared
    and say little. When a cell fails, those beside it are kept as they end.
    """
    waiting = list(reversed(cells))
    running: dict[Future[Record], Cell] = {}
    failure: BaseException | None = None
    with ProcessPoolExecutor(
        n_jobs,
        multiprocessing.get_context("spawn"),
        _start_worker,
        (Context(context.device, context.cache), n_jobs),
    ) as pool:
        while waiting or running:
            while waiting and len(running) < n_jobs:
                cell = waiting.pop()
                if run.may_start(cell):
                    running[pool.submit(_run_in_worker, cell, n_jobs)] = cell
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                cell, error = running.pop(future), future.exception()
                if error is None:
                    run.keep(cell, future.result())
                else:
                    failure = failure or error
                    waiting.clear()
    if isinstance(failure, BrokenProcessPool):
        raise SelfExpressError(
            "The processes that run cells should stay until the end, but one was "
            "ended, perhaps for want of memory. Finished cells are kept; go on with "
            "fewer --jobs."
        ) from failure
    if failure is not None:
        raise failure


def _start_worker(context: Context, n_jobs: int) -> None:
    global _context
    _context = context
    torch.set_num_threads(max(1, torch.get_num_threads() // n_jobs))
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when the one that started it is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run_in_worker(cell: Cell, n_jobs: int) -> Record:
    return run_cell(cell, _context) | {"n_jobs": n_jobs}


def completed(settings: Mapping[str, Any], like: Any) -> dict[str, Any]:
    """Return settings with defaults for what there was no choice of at their time.

    ``like`` is a cell of the same task; its values do not matter, only its fields.
    """
    found = dict(settings)
    for each in fields(like):
        inner, own = getattr(like, each.name), found.get(each.name)
        if is_dataclass(inner) and isinstance(own, dict):
            found[each.name] = completed(own, inner)
            continue
        is_new = each.name not in found and each.name != "seed"
        if is_new and each.default is not MISSING:
            found[each.name] = json.loads(json.dumps(each.default, default=plain))
    return found


def with_seeds(cells: Sequence[Cell], n_seeds: int) -> list[Cell]:
    """Return every cell with seeds 0 to ``n_seeds - 1``, all of one seed together."""
    return [replace(cell, seed=seed) for seed in range(n_seeds) for cell in cells]


def select(cells: Iterable[Cell], only: Sequence[str]) -> list[Cell]:
    """Return the cells whose settings have the values asked for.

    Each of ``only`` is ``name=value`` or ``name=value,value``. All must hold; a cell
    without such a setting does not match.
    """
    wanted = [_parse_condition(text) for text in only]
    known = [(cell, _flat(cell)) for cell in cells]
    for name, _ in wanted:
        names = sorted({key for _, settings in known for key in settings})
        if name not in names:
            raise ConfigError(
                f"--only must name a setting of the experiment, got {name!r}. Use one "
                f"of {', '.join(names)}."
            )
    return [
        cell
        for cell, settings in known
        if all(_has(settings, name, values) for name, values in wanted)
    ]


def _flat(cell: Cell) -> dict[str, Any]:
    """Return settings of any depth by name; the cell's own win over others."""
    return {**_flattened(cell.selectable()), "seed": cell.seed, "task": cell.task}


def _flattened(settings: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for value in settings.values():
        flat |= _flattened(value) if isinstance(value, dict) else {}
    return flat | {
        name: value for name, value in settings.items() if not isinstance(value, dict)
    }


def _has(settings: Mapping[str, Any], name: str, values: Sequence[str]) -> bool:
    return name in settings and any(_is(settings[name], text) for text in values)


def _is(value: Any, text: str) -> bool:
    """Say whether a text means a value: 200 is 200.0, and none is None."""
    if text.lower() == str(value).lower():
        return True
    meant = parse_value(text)
    return isinstance(meant, bool) == isinstance(value, bool) and bool(meant == value)


def parse_value(text: str) -> Any:
    """Return the value that a text means: JSON, or else itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _parse_condition(text: str) -> tuple[str, list[str]]:
    name, equals, values = text.partition("=")
    if not equals or not name or not values:
        raise ConfigError(
            f"--only must read name=value or name=value,value, got {text!r}. Use for "
            "example dataset=mnist."
        )
    # Not at the commas of a list such as hidden_sizes=[256,256].
    return name, re.split(r",(?![^\[]*\])", values)
