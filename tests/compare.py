"""Every tolerance of the suite, by dtype. Never loosen one to make a test pass."""

from __future__ import annotations

import numpy as np
import torch

RELATIVE = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.bfloat16: 2e-2,
}


def assert_close(actual: torch.Tensor, expected: torch.Tensor, *, atol: float = 0.0):
    """Compare two tensors with the relative tolerance of the coarser dtype."""
    rtol = max(RELATIVE[actual.dtype], RELATIVE[expected.dtype])
    torch.testing.assert_close(
        actual.double(), expected.double(), rtol=rtol, atol=atol, check_dtype=False
    )


def relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Return |actual - expected| / |expected| in the Frobenius norm."""
    difference = (actual.double() - expected.double()).norm()
    return float(difference / expected.double().norm())


def assert_same_partition(first: np.ndarray, second: np.ndarray):
    """Check that two labelings are equal up to the names of the labels."""
    from sklearn.metrics import adjusted_rand_score

    assert adjusted_rand_score(first, second) == 1.0
