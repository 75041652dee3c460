"""The compiler of the CPU kernels: its presence and its threads."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch
from threadpoolctl import threadpool_limits

T = TypeVar("T")
R = TypeVar("R")


@functools.cache
def has_numba() -> bool:
    """Tell whether numba can be imported; torch does its work otherwise."""
    return importlib.util.find_spec("numba") is not None


def for_row_ranges(kernel: Callable[[slice], object], n_rows: int) -> None:
    """Call a kernel for all rows, in as many threads as torch may use.

    The kernel must let go of the interpreter lock. Threads that sleep between calls
    are why this is not the compiler's own parallel loop: its threads keep spinning,
    and take the cores from torch's.
    """
    # Rows differ in cost: several ranges a thread even that out.
    size = max(1, -(-n_rows // (4 * torch.get_num_threads())))
    in_threads(kernel, [slice(start, start + size) for start in range(0, n_rows, size)])


def in_threads(
    function: Callable[[T], R], items: Sequence[T], n_threads: int | None = None
) -> list[R]:
    """Return what a function makes of every item, working on several at a time.

    In as many threads as torch may use unless a number is given, each with one thread
    for its own operations.
    """
    n_own = torch.get_num_threads()
    n_threads = n_threads or n_own
    if n_threads == 1 or len(items) == 1:
        return [function(item) for item in items]
    # Threads started from here on see this number.
    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(n_threads)
    try:
        return list(pool.map(function, items))
    finally:
        # After an error or an interruption nothing new is begun.
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(n_own)


@contextmanager
def one_thread() -> Iterator[int]:
    """Let libraries use one thread meanwhile; gives the number torch may use else.

    Their own threads spin while they wait for one another. On a busy machine that
    takes far longer than it saves.
    """
    n_threads = torch.get_num_threads()
    try:
        with threadpool_limits(1):
            torch.set_num_threads(1)
            yield n_threads
    finally:
        torch.set_num_threads(n_threads)
