"""Independent batches, one after the other or side by side, in full precision."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from selfexpress.ops.precision import float32_products


def for_each(
    function: Callable[[int], None], starts: Sequence[int], device: torch.device
) -> None:
    """Call ``function`` for the start of every batch.

    On a processor each of torch's threads takes batches of its own: small operations
    split over threads would spend their time in waiting for one another.
    """
    if device.type == "cpu":
        _keep_freed_memory()
        _in_threads(function, starts)
        return
    # Whatever the caller allows.
    with float32_products("highest"):
        for start in starts:
            function(start)


def _in_threads(function: Callable[[int], None], starts: Sequence[int]) -> None:
    n_before = torch.get_num_threads()
    n_threads = min(n_before, len(starts))
    if n_threads < 2:
        for start in starts:
            function(start)
        return
    try:
        with ThreadPoolExecutor(n_threads, initializer=_use_one_thread) as pool:
            deque(pool.map(function, starts), maxlen=0)
    finally:
        # Workers set the number for themselves, and for threads started later.
        torch.set_num_threads(n_before)


def _use_one_thread() -> None:
    torch.set_num_threads(1)


def _keep_freed_memory() -> None:
    """Let the C library keep what batches free, and not fetch fresh pages for each.

    glibc hands freed blocks back to the system unless it has seen a block as large
    freed before; faulting them in again, batch by batch, is slow.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)
