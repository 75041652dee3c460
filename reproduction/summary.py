"""What an experiment shows: tables and plots as plain data, drawn by others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Figure:
    """One number of a table: ours over seeds, and the paper's."""

    # One value a seed; empty if not run.
    ours: tuple[float, ...]
    paper: float | None = None
    # Decimals shown.
    digits: int = 3
    # Behind the paper's value, explained by a note of the table.
    mark: str = ""

    def __str__(self) -> str:
        """Ours as mean and standard deviation, then the paper's value in brackets."""
        parts = [self._ours()] if self.ours or self.paper is None else []
        if self.paper is not None:
            parts.append(f"[{self.paper:.{self.digits}f}{self.mark}]")
        return " ".join(parts)

    def _ours(self) -> str:
        if not self.ours:
            return "-"
        text = f"{np.mean(self.ours):.{self.digits}f}"
        if len(self.ours) > 1:
            text += f" ± {np.std(self.ours, ddof=1):.{self.digits}f}"
        return text

    def difference(self) -> float:
        """Return our mean less the paper's value; NaN where there is no such thing."""
        if not self.ours or self.paper is None:
            return float("nan")
        return float(np.mean(self.ours)) - self.paper

    def is_different(self) -> bool:
        """Return whether the paper's value is no likely draw of ours.

        It counts as one draw: beyond three standard deviations of ours, and more than
        the last decimal shown. Fewer than three seeds tell too little of a deviation.
        A mark says that the paper's value is wrong.
        """
        if len(self.ours) < 3 or self.paper is None or self.mark:
            return False
        spread = 3 * float(np.std(self.ours, ddof=1))
        return abs(self.difference()) > max(spread, 10.0**-self.digits)


Row = tuple[str | Figure, ...]


@dataclass(frozen=True)
class Table:
    """Rows of texts and figures under headings.

    ``is_compared`` says whether ours ought to be like the paper's, as seconds of other
    machines ought not.
    """

    title: str
    headings: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    is_compared: bool = True

    def differences(self) -> list[str]:
        """Say which figures differ from the paper's by more than seeds explain."""
        if not self.is_compared:
            return []
        return [
            f"{self._place(row)}, {heading}: {entry.difference():+.{entry.digits}f}"
            for row in self.rows
            for heading, entry in zip(self.headings, row, strict=True)
            if isinstance(entry, Figure) and entry.is_different()
        ]

    def _place(self, row: Row) -> str:
        """Return the name of a row: the texts that it starts with."""
        names = takewhile(lambda entry: isinstance(entry, str), row)
        return " ".join(str(name) for name in names if name)


@dataclass(frozen=True)
class Line:
    """A curve: y over x, with the spread over seeds where there is one."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    spread: tuple[float, ...] = ()


@dataclass(frozen=True)
class Panel:
    """Curves on common axes."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Plot:
    """Panels, or pictures with a caption each, in rows of ``n_columns``."""

    name: str
    panels: tuple[Panel, ...] = ()
    pictures: tuple[tuple[str, NDArray[np.uint8]], ...] = ()
    n_columns: int = 3


@dataclass(frozen=True)
class Summary:
    """All that is shown of an experiment, with remarks in the order they are read."""

    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()
    remarks: tuple[str, ...] = field(default=())


def least_to_most(values: Sequence[float], digits: int) -> str:
    """Return the range of a figure over seeds as text."""
    if not values:
        return "-"
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def line_over_seeds(
    name: str, x: Sequence[float], curves: Sequence[Sequence[float]]
) -> Line:
    """Return the mean of several curves over the same ``x``, and their deviation."""
    values = np.asarray(curves, dtype=np.float64)  # (seeds, points)
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else ()
    return Line(name, tuple(x), tuple(values.mean(axis=0)), tuple(spread))


def line_of_points(name: str, points: Sequence[tuple[float, Sequence[float]]]) -> Line:
    """Return the mean over seeds at every x, and the deviation."""
    values = [np.asarray(y, dtype=np.float64) for _, y in points]
    return Line(
        name,
        tuple(x for x, _ in points),
        tuple(float(y.mean()) for y in values),
        tuple(float(y.std(ddof=1)) if len(y) > 1 else 0.0 for y in values),
    )
