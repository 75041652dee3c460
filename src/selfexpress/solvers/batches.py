"""Rows solved in batches: how many at a time, side by side, with progress."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

import torch

from selfexpress.solvers.compiled import in_threads
from selfexpress.solvers.problem import Progress

# Rows solved together, and rows of the dictionary compared with them at a time. A
# processor keeps a block in its cache; a GPU needs many rows to be busy.
_BATCH_SIZE = {"cpu": 512, "cuda": 8192}
_BLOCK_SIZE = {"cpu": 8192, "cuda": 32768}


def block_size_or_default(block_size: int | None, device: torch.device) -> int:
    """Return the size asked for, or the one that suits the device."""
    return block_size or _BLOCK_SIZE[device.type]


def solve_in_batches(
    solve: Callable[[slice], None],
    n_rows: int,
    *,
    batch_size: int | None,
    device: torch.device,
    progress: Progress | None,
) -> None:
    """Call ``solve`` for every batch of rows.

    On a processor each of torch's threads solves batches of its own: they have nothing
    to wait for, while threads that share each small operation mostly wait.

    Parameters
    ----------
    solve : callable
        Receives the rows of a batch as a slice.
    n_rows : int
    batch_size : int, optional
        Chosen by the device unless given.
    device : torch.device
    progress : callable, optional
        Called with the rows finished and the rows in all after every batch.
    """
    size = batch_size or _BATCH_SIZE[device.type]
    if batch_size is None and device.type == "cpu":
        size = max(1, min(size, -(-n_rows // torch.get_num_threads())))
    lock, n_done = Lock(), 0

    def solve_and_count(batch: slice) -> None:
        nonlocal n_done
        solve(batch)
        with lock:
            n_done += batch.stop - batch.start
            if progress is not None:
                progress(n_done, n_rows)

    starts = range(0, n_rows, size)
    batches = [slice(start, min(start + size, n_rows)) for start in starts]
    if device.type == "cpu":
        in_threads(solve_and_count, batches)
    else:
        for batch in batches:
            solve_and_count(batch)
