"""Seconds and memory, of functions measured side by side and of steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from reproduction.record import peak_bytes
from selfexpress.training.callbacks import Callback, TrainState

# Steps before the clock starts.
_WARM_UP = 50


@dataclass(frozen=True)
class Timing:
    """Seconds of repeated runs, and the most memory any of them used."""

    # Median of the repeats, and largest minus smallest.
    median: float
    spread: float
    # Every repeat, in order.
    seconds: tuple[float, ...]
    # On CUDA the allocator's peak during the repeats; otherwise the largest resident
    # size the process ever had, which earlier steps of the process may have set.
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


class Meter(Callback):
    """Measures ``seconds_a_step`` after the first ones, and ``peak_bytes`` on a GPU.

    The bytes are those of the training, without what was in use before.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.peak_bytes = 0
        self.seconds_a_step = float("nan")
        self._start_bytes = 0
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            self._start_bytes = torch.cuda.memory_allocated(device)
        self._start, self._first = float("nan"), 0

    def on_step_end(self, state: TrainState) -> None:
        """Start the clock after the warm-up, stop it after the last step."""
        is_first = state.step == min(_WARM_UP, state.max_iter - 1)
        if not is_first and state.step != state.max_iter:
            return
        synchronize(self.device)
        now = time.perf_counter()
        if is_first:
            self._start, self._first = now, state.step
        else:
            self.seconds_a_step = (now - self._start) / (state.step - self._first)
            if self.device.type == "cuda":
                self.peak_bytes = peak_bytes(self.device) - self._start_bytes
