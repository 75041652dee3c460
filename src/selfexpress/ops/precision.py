"""In how many digits is computed, whatever the caller has set torch to."""

from __future__ import annotations

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
    """Compute in float32 unless told otherwise, as a decorator or for a while.

    Autocast and the default type of torch are the caller's, for models of their own:
    here they would take digits away, or mix types that do not fit together.
    """
    theirs = torch.get_default_dtype()
    with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
        if theirs == torch.float32:
            yield
            return
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(theirs)


def in_own_arithmetic(items: Iterator[Item]) -> Iterator[Item]:
    """Yield items that are each computed so; between them the caller has their own."""
    while True:
        with own_arithmetic():
            try:
                item = next(items)
            except StopIteration:
                return
        yield item
