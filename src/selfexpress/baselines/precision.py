"""Full float32 products whatever precision the program asked for elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def exact_products() -> Iterator[None]:
    """Compute float32 matrix products in float32 inside the block.

    TF32 keeps 10 bits: an optimality condition checked with it would be off by more
    than the usual tolerance.
    """
    previous = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(previous)
