"""Line and bar charts as places in a small box, which the page draws as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from selfexpress.report.record import Floats
from selfexpress.report.words import number

_MOST_PLACES = 240


@dataclass(frozen=True)
class Chart:
    """What to draw where; texts stand beside their place on an axis.

    The box is narrow, so that letters keep their size on a phone.
    """

    title: str
    text: str
    description: str
    x_label: str
    x_ticks: list[tuple[str, float]]
    y_ticks: list[tuple[str, float]]
    lines: dict[str, str] = field(default_factory=dict)
    bars: list[tuple[float, float, float, float]] = field(default_factory=list)
    width: int = 360
    height: int = 220
    left: int = 46
    right: int = 348
    top: int = 14
    bottom: int = 186


def line_chart(
    title: str, text: str, series: Mapping[str, Floats], *, may_be_log: bool = False
) -> Chart:
    """Draw one line a series over training steps 1, 2, ...; all of one length.

    The vertical axis is logarithmic if it may be and positive values span more than a
    factor of 30.
    """
    values = np.concatenate(list(series.values()))
    is_log = may_be_log and bool(values.min() > 0 and values.max() > 30 * values.min())
    length = len(next(iter(series.values())))
    x_range, y_range = (1.0, max(length, 2.0)), _range(values, is_log)
    return Chart(
        title,
        text,
        f"{title} by training step: {text}",
        "training step",
        [(number(t), _across(t, x_range)) for t in _ticks(0, length, False) if t >= 1],
        [(number(t), _down(t, y_range, is_log)) for t in _ticks(*y_range, is_log)],
        {
            name: " ".join(
                f"{_across(step, x_range)},{_down(value, y_range, is_log)}"
                for step, value in zip(*_thinned(data), strict=True)
            )
            for name, data in series.items()
        },
    )


def bar_chart(
    title: str, text: str, heights: Sequence[float], names: Sequence[str], x_label: str
) -> Chart:
    """Draw upright bars from zero, labelled along the bottom as space allows."""
    y_range = (0.0, max([*heights, 0]) or 1)
    step = (Chart.right - Chart.left) / len(heights)
    every = math.ceil(len(names) / 9)
    bars = []
    for place, height in enumerate(heights):
        top = _down(height, y_range)
        left = Chart.left + (place + 0.1) * step
        bars.append(
            (round(left, 1), top, round(0.8 * step, 1), round(Chart.bottom - top, 1))
        )
    return Chart(
        title,
        text,
        text,
        x_label,
        [
            (name, round(Chart.left + (place + 0.5) * step, 1))
            for place, name in enumerate(names)
            if place % every == 0
        ],
        [(number(tick), _down(tick, y_range)) for tick in _ticks(*y_range, False)],
        bars=bars,
    )


def sparkline(values: Floats) -> str:
    """Return the points of a row's numbers as a line around the middle of 96 x 40."""
    finite = np.nan_to_num(np.asarray(values, dtype=np.float64), posinf=0, neginf=0)
    reach = float(np.abs(finite).max(initial=0)) or 1.0
    across = np.linspace(2, 94, len(finite))
    down = 20 - 18 * finite / reach
    return " ".join(f"{u:.1f},{v:.1f}" for u, v in zip(across, down, strict=True))


def _across(value: float, ends: tuple[float, float]) -> float:
    return round(float(np.interp(value, ends, (Chart.left, Chart.right))), 1)


def _down(value: float, ends: tuple[float, float], is_log: bool = False) -> float:
    if is_log:
        value, ends = math.log10(value), (math.log10(ends[0]), math.log10(ends[1]))
    return round(float(np.interp(value, ends, (Chart.bottom, Chart.top))), 1)


def _thinned(data: Floats) -> tuple[Floats, Floats]:
    """Average neighbouring steps where there are more than can be seen."""
    steps = np.arange(1, len(data) + 1, dtype=np.float64)
    if len(data) <= _MOST_PLACES:
        return steps, data
    starts = np.arange(_MOST_PLACES) * len(data) // _MOST_PLACES
    sizes = np.diff(np.append(starts, len(data)))
    return np.add.reduceat(steps, starts) / sizes, np.add.reduceat(data, starts) / sizes


def _range(values: Floats, is_log: bool) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    if is_log:
        return low, high
    low = min(low, 0.0) if low < 0.5 * abs(high) else low
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _ticks(low: float, high: float, is_log: bool) -> list[float]:
    from matplotlib.ticker import LogLocator, MaxNLocator

    locator = LogLocator(numticks=6) if is_log else MaxNLocator(4)
    ticks = np.asarray(locator.tick_values(low, high))
    return [float(tick) for tick in ticks if low <= tick <= high]
