"""Run the cells of an experiment and keep every result at once.

A cell is one setting with one seed. Its record is on the disk before the next cell
starts, and a cell whose record is there is not run again: an interrupted run goes on
where it stopped. Nothing here knows the paper.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from reproduction.cells import Cell, Context, Record, run_cell
from reproduction.record import append_record, plain, read_records
from reproduction.side_by_side import run_side_by_side
from reproduction.summary import Summary
from selfexpress.errors import ConfigError, DataError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    Attributes
    ----------
    name : str
        As typed after ``selfexpress reproduce``.
    title : str
    cells : callable
        From whether to be quick to the cells of seed 0.
    summarize : callable
        From results and whether they are the quick ones to tables and plots.
    """

    name: str
    title: str
    cells: Callable[[bool], list[Cell]]
    summarize: Callable[[Results, bool], Summary]


class Results:
    """The records of a folder, found by a cell's settings.

    Parameters
    ----------
    folder : Path
        With one file of records for each task.
    """

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
        """Return whether a cell has been run; one that failed is run again."""
        return any(record["seed"] == cell.seed for record in self.of(cell))

    def metric(self, cell: Cell, *path: str) -> tuple[float, ...]:
        """Return one figure of every seed, found by its path in the metrics.

        Seconds are under "seconds", and only of cells that nothing ran beside.
        """
        values = (_value(record, path) for record in self.of(cell))
        return tuple(value for value in values if value is not None)

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
        append_record(self._path(cell.task), record)
        self._remember(json.loads(json.dumps(record, default=plain)))

    def prepare(self) -> None:
        """Make the folder ready for records.

        Raises
        ------
        DataError
            If it cannot be written to, which is better known before a cell is run.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"{self.folder} must be a folder that records can be written to, but "
                f"cannot be made ({error.strerror}). Name another by --records."
            ) from error
        if not os.access(self.folder, os.W_OK):
            raise DataError(
                f"The folder {self.folder} must be writable for records, but is not. "
                "Name another by --records."
            )

    def _path(self, task: str) -> Path:
        return self.folder / f"{task}.jsonl"

    def _load(self, cell: Cell) -> None:
        if cell.task not in self._read:
            self._read.add(cell.task)
            for record in read_records(self._path(cell.task)):
                settings = completed(record["settings"], cell)
                self._remember(record | {"settings": settings})

    def _runs(self, cell: Cell) -> list[Record]:
        """Return every record of a cell's settings, of all seeds, oldest first."""
        self._load(cell)
        found = self._by_key.get(_key(cell.task, cell.settings()), [])
        return [record for record in found if cell.fits(record)]

    def _remember(self, record: Record) -> None:
        key = _key(record["task"], record["settings"])
        self._by_key.setdefault(key, []).append(record)


def _value(record: Record, path: tuple[str, ...]) -> float | None:
    """Return the figure of a record at a path; None where it has none."""
    is_alone = record.get("n_jobs", 1) == 1
    seconds = record["seconds"] if is_alone else {}
    value: Any = {**record["metrics"], "seconds": seconds}
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return None if value is None else float(value)


@dataclass(frozen=True)
class Progress:
    """How far a run came.

    Attributes
    ----------
    n_run, n_skipped, n_failed, n_left : int
        Cells run now, found finished, ended by an error, and not reached in time.
    """

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
        Told in a line about every cell.

    Returns
    -------
    Progress
    """
    results.prepare()
    wanted = list(dict.fromkeys(cells))
    pending = [cell for cell in wanted if not results.has(cell)]
    run = _Run(results, announce, len(pending), n_jobs, time_limit)
    alone = [cell for cell in pending if n_jobs == 1 or cell.is_timed]
    together = [cell for cell in pending if cell not in alone]
    if together:
        run_side_by_side(
            together, context, n_jobs, may_start=run.may_start, keep=run.keep
        )
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
        self._announce(_line(cell, record, self.n_run, self._n_pending))
        for warning in record["warnings"]:
            if warning not in self._warned:
                self._announce(f"warning: {warning}")
                self._warned.add(warning)


def completed(settings: Mapping[str, Any], like: Any) -> dict[str, Any]:
    """Return settings with defaults for what there was no choice of at their time.

    Parameters
    ----------
    settings : mapping
        Of a record.
    like : dataclass instance
        A cell of the same task; its values do not matter, only its fields.
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

    Parameters
    ----------
    cells : iterable of Cell
    only : sequence of str
        Each ``name=value`` or ``name=value,value``. All must hold; a cell without such
        a setting does not match.
    """
    wanted = [_parse_condition(text) for text in only]
    known = list(cells)
    for name, _ in wanted:
        if not any(name in _flat(cell) for cell in known):
            names = sorted({key for cell in known for key in _flat(cell)})
            raise ConfigError(
                f"--only must name a setting of the experiment, got {name!r}. Use one "
                f"of {', '.join(names)}."
            )
    return [
        cell
        for cell in known
        if all(_has(_flat(cell), name, values) for name, values in wanted)
    ]


def _key(task: str, settings: Mapping[str, Any]) -> str:
    return json.dumps([task, settings], sort_keys=True)


def _line(cell: Cell, record: Record, n_done: int, n_pending: int) -> str:
    end = f"failed: {record['error']}" if "error" in record else "done"
    return (
        f"[{n_done}/{n_pending}] {cell.task} {cell.label()} seed={cell.seed} "
        f"{record['seconds']['cell']:.1f} s {end}"
    )


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
    try:
        meant = json.loads(text)
    except ValueError:
        return False
    return isinstance(meant, bool) == isinstance(value, bool) and meant == value


def _parse_condition(text: str) -> tuple[str, list[str]]:
    name, equals, values = text.partition("=")
    if not equals or not name or not values:
        raise ConfigError(
            f"--only must read name=value or name=value,value, got {text!r}. Use for "
            "example dataset=mnist."
        )
    # Not at the commas of a list such as hidden_sizes=[256,256].
    return name, re.split(r",(?![^\[]*\])", values)
