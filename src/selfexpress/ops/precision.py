"""In how many digits is computed, whatever the caller has set torch to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

Item = TypeVar("Item")


@contextmanager
def float32_products(precision: str) -> Iterator[None]:
    """Let a GPU use all digits ("highest") or those of tf32 ("high") for a while.

    tf32 keeps 10 bits: an optimality condition checked with it would be off by more
    than the usual tolerance.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def own_arithmetic() -> Iterator[None]:
    """Compute in float32 by default, as a decorator or for a while.

    Autocast and the default type of torch are the caller's, for models of their own:
    here they would take digits away, or mix types that do not fit together.
    """
    with (
        torch.autocast("cpu", enabled=False),
        torch.autocast("cuda", enabled=False),
        _SINGLE,
    ):
        yield


class _SingleByDefault:
    """Makes float32 torch's default type while anyone is inside.

    All threads share that type: the first who enters sets it, the last who leaves puts
    the caller's back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_inside = 0
        self._theirs = torch.float32

    def __enter__(self) -> None:
        with self._lock:
            if self._n_inside == 0:
                self._theirs = torch.get_default_dtype()
                torch.set_default_dtype(torch.float32)
            self._n_inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._n_inside -= 1
            if self._n_inside == 0:
                torch.set_default_dtype(self._theirs)


_SINGLE = _SingleByDefault()


def in_own_arithmetic(items: Iterator[Item]) -> Iterator[Item]:
    """Yield items that are each computed so; between them the caller has their own."""
    while True:
        with own_arithmetic():
            try:
                item = next(items)
            except StopIteration:
                return
        yield item
