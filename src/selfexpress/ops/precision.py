"""How many digits of float32 factors a GPU multiplies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
