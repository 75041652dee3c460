"""Timing shared by every benchmark, and where their records go.

A record is one JSON file, ``benchmarks/records/<claim>_<hardware>_<YYYYMMDD>.json``;
`reproduction.record` says what is in it.

Run a benchmark as ``selfexpress bench <claim>``, or ``python`` with its file; it
imports this module from its own folder.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from reproduction import record
from reproduction.record import RECORDS, ROOT, commit, hardware, peak_bytes, versions

__all__ = [
    "RECORDS",
    "ROOT",
    "Timing",
    "alternately",
    "commit",
    "hardware",
    "peak_bytes",
    "timed",
    "versions",
    "write_record",
]


write_record = functools.partial(record.write_record, folder=RECORDS)


@dataclass(frozen=True)
class Timing:
    """Seconds of repeated runs, and the most memory any of them used.

    Attributes
    ----------
    median, spread : float
        Median of the repeats, and largest minus smallest.
    seconds : tuple of float
        Every repeat, in order.
    peak_bytes : int
        On CUDA the allocator's peak during the repeats; otherwise the largest resident
        size the process ever had, which earlier steps of the process may have set.
    """

    median: float
    spread: float
    seconds: tuple[float, ...]
    peak_bytes: int


def timed(
    function: Callable[[], object],
    repeats: int = 5,
    *,
    warmup: int = 1,
    device: torch.device | str = "cpu",
) -> Timing:
    """Time ``function`` after ``warmup`` untimed calls, waiting for the device."""
    return alternately({"only": function}, repeats, warmup=warmup, device=device)[
        "only"
    ]


def alternately(
    functions: dict[str, Callable[[], object]],
    repeats: int = 5,
    *,
    warmup: int = 1,
    device: torch.device | str = "cpu",
) -> dict[str, Timing]:
    """Time several functions in turn, so that a busy machine slows all alike."""
    device = torch.device(device)
    for function in functions.values():
        for _ in range(warmup):
            function()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            seconds[name].append(_once(function, device))
    peak = peak_bytes(device)
    return {name: _timing(values, peak) for name, values in seconds.items()}


def _once(function: Callable[[], object], device: torch.device) -> float:
    _synchronize(device)
    start = time.perf_counter()
    function()
    _synchronize(device)
    return time.perf_counter() - start


def _timing(seconds: list[float], peak: int) -> Timing:
    return Timing(
        median=float(np.median(seconds)),
        spread=max(seconds) - min(seconds),
        seconds=tuple(seconds),
        peak_bytes=peak,
    )


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
