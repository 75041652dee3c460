"""Line and bar charts as inline SVG whose colours follow the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from selfexpress.report.markup import Markup, element, join, number
from selfexpress.report.record import Floats

# Narrow, so that letters keep their size on a phone; the page sets charts side by side.
_WIDTH, _HEIGHT = 360, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 14, 34
_MOST_PLACES = 240
_N_SERIES = 4


def line_chart(
    series: Mapping[str, Floats],
    *,
    description: str,
    x_label: str,
    may_be_log: bool = False,
) -> Markup:
    """Draw one line a series over its positions 1, 2, ...; all of one length.

    The vertical axis is logarithmic if it may be and positive values span more than a
    factor of 30.
    """
    values = np.concatenate(list(series.values()))
    is_log = may_be_log and bool(values.min() > 0 and values.max() > 30 * values.min())
    length = len(next(iter(series.values())))
    low, high = _range(values, is_log)
    x_of = _scaler(1, max(length, 2), _LEFT, _WIDTH - _RIGHT, is_log=False)
    y_of = _scaler(low, high, _HEIGHT - _BOTTOM, _TOP, is_log=is_log)
    lines = [
        _line(data, x_of, y_of, place) for place, data in enumerate(series.values())
    ]
    frame = join([_y_axis(low, high, y_of, is_log), _x_axis(length, x_of, x_label)])
    return join([_svg(description, frame, *lines), _key(list(series))])


def bar_chart(
    heights: Sequence[float],
    names: Sequence[str],
    *,
    description: str,
    x_label: str,
) -> Markup:
    """Draw upright bars from zero, named along the bottom as space allows."""
    highest = max([*heights, 0]) or 1
    y_of = _scaler(0, highest, _HEIGHT - _BOTTOM, _TOP, is_log=False)
    step = (_WIDTH - _LEFT - _RIGHT) / max(len(heights), 1)
    every = max(1, math.ceil(len(names) / 9))
    parts = [_y_axis(0, highest, y_of, False)]
    for place, (height, name) in enumerate(zip(heights, names, strict=True)):
        left = _LEFT + place * step
        top = y_of(height)
        parts.append(
            element("rect", x=_short(left + 0.1 * step), y=_short(top),
                    width=_short(0.8 * step), height=_short(_HEIGHT - _BOTTOM - top),
                    class_="bar", rx=1.5)
        )  # fmt: skip
        if place % every == 0:
            parts.append(_tick_text(name, left + step / 2, _HEIGHT - _BOTTOM + 14))
    parts.append(_axis_title(x_label))
    return _svg(description, *parts)


def sparkline(values: Floats) -> Markup:
    """Draw a row's numbers as a small line around zero, for the eye alone."""
    width, height = 96, 40
    finite = np.nan_to_num(np.asarray(values, dtype=np.float64), posinf=0, neginf=0)
    reach = float(np.abs(finite).max(initial=0)) or 1.0
    across = np.linspace(2, width - 2, len(finite))
    down = height / 2 - finite / reach * (height / 2 - 2)
    points = " ".join(f"{u:.1f},{v:.1f}" for u, v in zip(across, down, strict=True))
    middle = element(
        "line", x1=0, x2=width, y1=height / 2, y2=height / 2, class_="grid"
    )
    line = element("polyline", points=points, class_="line series-0")
    return element("svg", middle, line, viewBox=f"0 0 {width} {height}",
                   class_="sparkline", aria_hidden="true")  # fmt: skip


def _svg(description: str, *parts: Markup) -> Markup:
    return element("svg", *parts, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img",
                   aria_label=description, class_="chart")  # fmt: skip


def _line(data: Floats, x_of: _Scaler, y_of: _Scaler, place: int) -> Markup:
    steps, values = _thinned(data)
    points = " ".join(
        f"{x_of(step):.1f},{y_of(value):.1f}"
        for step, value in zip(steps, values, strict=True)
    )
    name = f"line series-{place % _N_SERIES}"
    return element("polyline", points=points, class_=name)


def _thinned(data: Floats) -> tuple[Floats, Floats]:
    """Average neighbouring steps where there are more than can be seen."""
    steps = np.arange(1, len(data) + 1, dtype=np.float64)
    if len(data) <= _MOST_PLACES:
        return steps, data
    starts = np.arange(_MOST_PLACES) * len(data) // _MOST_PLACES
    sizes = np.diff(np.append(starts, len(data)))
    return np.add.reduceat(steps, starts) / sizes, np.add.reduceat(data, starts) / sizes


class _Scaler:
    """A value's place between two ends of an axis."""

    def __init__(self, low: float, high: float, first: float, last: float) -> None:
        self.low, self.high, self.first, self.last = low, high, first, last

    def __call__(self, value: float) -> float:
        share = (self._curve(value) - self._curve(self.low)) / (
            (self._curve(self.high) - self._curve(self.low)) or 1
        )
        return self.first + share * (self.last - self.first)

    def _curve(self, value: float) -> float:
        return value


class _LogScaler(_Scaler):
    def _curve(self, value: float) -> float:
        return math.log10(value)


def _scaler(
    low: float, high: float, first: float, last: float, *, is_log: bool
) -> _Scaler:
    return (_LogScaler if is_log else _Scaler)(low, high, first, last)


def _range(values: Floats, is_log: bool) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    if is_log:
        return low, high
    low = min(low, 0.0) if low < 0.5 * abs(high) else low
    if high == low:
        return low - 0.5, high + 0.5
    return low, high


def _ticks(low: float, high: float, is_log: bool) -> list[float]:
    if is_log:
        first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
        powers = [10.0**power for power in range(first, last + 1)]
        return powers[:: max(1, len(powers) // 5)] or [low, high]
    rough = (high - low) / 4 or 1
    size = 10 ** math.floor(math.log10(rough))
    step = next(size * k for k in (1, 2, 2.5, 5, 10) if size * k >= rough)
    return [step * k for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _y_axis(low: float, high: float, y_of: _Scaler, is_log: bool) -> Markup:
    parts = []
    for tick in _ticks(low, high, is_log):
        y = y_of(tick)
        parts.append(element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=_short(y),
                             y2=_short(y), class_="grid"))  # fmt: skip
        parts.append(element("text", number(tick), x=_LEFT - 6, y=_short(y + 4),
                             text_anchor="end"))  # fmt: skip
    return join(parts)


def _x_axis(length: int, x_of: _Scaler, title: str) -> Markup:
    ticks = [tick for tick in _ticks(0, length, False) if tick >= 1]
    texts = [_tick_text(number(t), x_of(t), _HEIGHT - _BOTTOM + 14) for t in ticks]
    return join([*texts, _axis_title(title)])


def _tick_text(text: str, x: float, y: float) -> Markup:
    return element("text", text, x=_short(x), y=_short(y), text_anchor="middle")


def _axis_title(text: str) -> Markup:
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    return element("text", text, x=middle, y=_HEIGHT - 4, text_anchor="middle",
                   class_="axis-title")  # fmt: skip


def _key(names: Sequence[str]) -> Markup:
    if len(names) < 2:
        return Markup("")
    entries = [
        element("li", element("span", class_=f"swatch series-{i % _N_SERIES}"), name)
        for i, name in enumerate(names)
    ]
    return element("ul", *entries, class_="key")


def _short(value: float) -> str:
    return f"{value:.1f}"
