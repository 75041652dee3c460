"""Numbers and durations as people write them."""

from __future__ import annotations

import math


def number(value: float, digits: int = 3) -> str:
    """Return a number grouped and without needless digits."""
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "infinite"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    size = abs(value)
    if size >= 10**digits:
        return f"{value:,.0f}"
    return f"{value:.{digits - 1}e}" if size < 1e-4 else f"{value:.{digits}g}"


def seconds(value: float) -> str:
    """Return a duration with its unit, such as ``0.4 s``, ``12 s`` or ``3 min 5 s``."""
    if value < 10:
        return f"{value:.1f} s" if value >= 0.1 else f"{1000 * value:.0f} ms"
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
