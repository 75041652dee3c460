"""Time and memory of the steps of a training."""

from __future__ import annotations

import re
import time
from pathlib import Path

import torch

from reproduction.record import peak_bytes
from selfexpress.training.callbacks import Callback, TrainState

# Steps before the clock starts.
_WARM_UP = 50


class Meter(Callback):
    """Measures seconds a step after the first ones, and the most memory in use.

    Parameters
    ----------
    device : torch.device

    Attributes
    ----------
    seconds_a_step : float
    peak_bytes : int
        Of the training, without what was in use before.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.peak_bytes = 0
        self.seconds_a_step = float("nan")
        self._start_bytes = _restart_peak(device)
        self._start, self._first = float("nan"), 0

    def on_step_end(self, state: TrainState) -> None:
        """Start the clock after the warm-up, stop it after the last step."""
        is_first = state.step == min(_WARM_UP, state.max_iter - 1)
        if not is_first and state.step != state.max_iter:
            return
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        now = time.perf_counter()
        if is_first:
            self._start, self._first = now, state.step
        else:
            self.seconds_a_step = (now - self._start) / (state.step - self._first)
            self.peak_bytes = _peak(self.device) - self._start_bytes


def _restart_peak(device: torch.device) -> int:
    """Forget earlier peaks; return what is in use now."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return int(torch.cuda.memory_allocated(device))
    try:
        # Linux sets the peak of resident memory back to what is resident now.
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return 0
    return _peak(device)


def _peak(device: torch.device) -> int:
    """Return the most memory in use since the peak was restarted."""
    status = Path("/proc/self/status")
    if device.type == "cuda" or not status.is_file():
        return peak_bytes(device)
    found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
    return 1024 * int(found.group(1)) if found else peak_bytes(device)
