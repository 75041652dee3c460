"""Benchmarks: a claim, a function that measures it, and its settings as data.

A benchmark is an experiment like those of the paper, on the same runner and with the
same records, but measured anew whenever it is asked for.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from reproduction.record import Record, plain_copy, read_records
from reproduction.runner import Cell, Context, Experiment, Outcome, Results
from reproduction.summary import Row, Summary, Table
from selfexpress.errors import ConfigError

# From context and seed, with settings by name, to the figures measured.
Measure = Callable[..., dict[str, Any]]
# Runs shown, and figures of each.
_MOST_RUNS, _MOST_FIGURES = 10, 16

BENCHMARKS: dict[str, Experiment] = {}
_MEASURES: dict[str, Measure] = {}


@dataclass(frozen=True, kw_only=True)
class Measurement(Cell):
    """One run of a benchmark, alone on the machine."""

    is_kept: ClassVar[bool] = False
    name: str
    arguments: tuple[tuple[str, Any], ...]

    @property
    def task(self) -> str:  # type: ignore[override]
        """Name the file of records."""
        return self.name

    @property
    def is_timed(self) -> bool:
        """Nothing may run beside it."""
        return True

    def label(self) -> str:
        """Say which settings are not what they are by default."""
        defaults = _defaults(_MEASURES[self.name])
        return " ".join(f"{n}={v}" for n, v in self.arguments if v != defaults[n])

    def settings(self) -> dict[str, Any]:
        """Return the arguments of the measure."""
        return plain_copy(dict(self.arguments))

    def changed(self, changes: dict[str, Any]) -> Measurement:
        """Return the same with other settings."""
        known = dict(self.arguments)
        for name in changes:
            if name not in known:
                raise ConfigError(
                    f"--set must name a setting of {self.name}, got {name!r}. Use one "
                    f"of {', '.join(known) or 'none'}."
                )
        return replace(self, arguments=tuple((known | changes).items()))

    def run(self, context: Context) -> Outcome:
        """Measure."""
        measure = _MEASURES[self.name]
        return Outcome(measure(context, self.seed, **dict(self.arguments)))


def benchmark(
    claim: str,
    *,
    quick: Mapping[str, Any],
    over: Mapping[str, Sequence[Any]] | None = None,
) -> Callable[[Measure], Measure]:
    """Register a function as a benchmark of its own name.

    Parameters
    ----------
    claim : str
    quick : mapping
        Settings of the small version.
    over : mapping, optional
        Values of settings that are all measured, in every combination.
    """

    def register(measure: Measure) -> Measure:
        name = measure.__name__.replace("_", "-")

        def cells(is_quick: bool) -> list[Cell]:
            fixed = _defaults(measure) | (dict(quick) if is_quick else {})
            varied = {n: v for n, v in (over or {}).items() if not is_quick}
            base = Measurement(name=name, arguments=tuple(fixed.items()))
            return [
                base.changed(dict(zip(varied, each, strict=True)))
                for each in itertools.product(*varied.values())
            ]

        def summarize(results: Results, _: bool) -> Summary:
            records = read_records(results.folder / f"{name}.jsonl")[-_MOST_RUNS:]
            rows = tuple(_row(record) for record in records)
            headings = ("date", "hardware", "seed", "settings", "figures")
            return Summary((Table(claim, headings, rows),))

        _MEASURES[name] = measure
        BENCHMARKS[name] = Experiment(name, claim, cells, summarize)
        return measure

    return register


def _defaults(measure: Measure) -> dict[str, Any]:
    parameters = inspect.signature(measure).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def _row(record: Record) -> Row:
    found = itertools.islice(_flat(record.get("metrics", {})), _MOST_FIGURES)
    return (
        record["date"][:10],
        record["hardware"]["name"],
        str(record["seed"]),
        ", ".join(f"{n}={v}" for n, v in record["settings"].items() if v is not None),
        record.get("error") or ", ".join(found),
    )


def _flat(metrics: Mapping[Any, Any], prefix: str = "") -> Iterator[str]:
    """Yield figures in words, with the means of lists of them."""
    for name, value in metrics.items():
        if isinstance(value, list) and isinstance((value or [0])[0], Mapping):
            yield from _flat(dict(enumerate(value)), f"{prefix}{name} ")
        elif isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name} ")
        elif isinstance(value, list) and all(isinstance(v, int | float) for v in value):
            yield f"{prefix}{name} {np.mean(value or [np.nan]):.4g}"
        elif isinstance(value, int | float):
            yield f"{prefix}{name} {value:.4g}"
