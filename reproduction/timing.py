"""Seconds and memory of functions, measured side by side."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from reproduction.record import peak_bytes


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
    only = {"only": function}
    return alternately(only, repeats, warmup=warmup, device=device)["only"]


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
            synchronize(device)
            start = time.perf_counter()
            function()
            synchronize(device)
            seconds[name].append(time.perf_counter() - start)
    peak = peak_bytes(device)
    return {
        name: Timing(float(np.median(each)), max(each) - min(each), tuple(each), peak)
        for name, each in seconds.items()
    }


def synchronize(device: torch.device) -> None:
    """Wait for a GPU to be done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
