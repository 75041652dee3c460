"""Sums of outer products of rows, and their leading eigenvectors.

Shapes: N samples, D features, M components.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray
from torch import Tensor

from selfexpress.errors import DataError
from selfexpress.rows.sources import RowSource


@dataclass(frozen=True)
class Moments:
    """Sums over all rows: of outer products (D, D) about the mean, and the mean."""

    gram: Tensor
    mean: Tensor


def second_moments(source: RowSource, block_size: int, *, center: bool) -> Moments:
    """Sum up X^T X in double precision; memory does not grow with the rows."""
    gram = shift = total = None
    has_extent = False
    for block in source.blocks(block_size):
        rows = block.rows.double()
        if gram is None or shift is None or total is None:
            # About a point near the mean, so that subtracting the mean at the end does
            # not cancel the digits of a small variance.
            shift = rows.mean(dim=0) if center else rows.new_zeros(rows.shape[1])
            gram = rows.new_zeros(rows.shape[1], rows.shape[1])
            total = rows.new_zeros(rows.shape[1])
        if center:
            rows = rows - shift
            total += rows.sum(dim=0)
        gram += _outer_products(rows)
        has_extent = has_extent or bool(rows.any())
    if gram is None or shift is None or total is None:
        raise DataError("X must hold at least one row, got none. Check its source.")
    if not bool(gram.isfinite().all()):
        raise DataError(
            "Squares of rows must be finite in double precision, but some are not. "
            "Scale the rows down, or replace what is NaN or infinite."
        )
    if has_extent and not bool(gram.any()):
        raise DataError(
            "Squares of rows must not all vanish in double precision, but do. Scale "
            "the rows up."
        )
    offset = total / len(source)
    return Moments(gram - len(source) * torch.outer(offset, offset), shift + offset)


def _outer_products(rows: Tensor) -> Tensor:
    if rows.is_cuda:
        return rows.T @ rows
    # NumPy sees that the factors are one array and does half the work.
    array = rows.numpy()
    with np.errstate(over="ignore", invalid="ignore"):  # found in the sum
        return torch.from_numpy(array.T @ array)


def leading_eigenvectors(
    gram: Tensor, n_vectors: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return eigenvalues, largest first, and eigenvectors as rows with fixed signs."""
    n_features = len(gram)
    if gram.is_cuda:
        every_value, every_vector = torch.linalg.eigh(gram)
        values = every_value[-n_vectors:].cpu().numpy()
        vectors = every_vector[:, -n_vectors:].cpu().numpy()
    else:
        values, vectors = scipy.linalg.eigh(
            gram.numpy(),
            subset_by_index=(n_features - n_vectors, n_features - 1),
            overwrite_a=True,
            check_finite=False,
        )
    # Rounding can leave a tiny negative where the data have no extent.
    values = np.maximum(values[::-1], 0.0)
    vectors = vectors.T[::-1]  # (M, D)
    largest = np.abs(vectors).argmax(axis=1)
    signs = np.sign(vectors[np.arange(n_vectors), largest])
    return values, np.ascontiguousarray(vectors * signs[:, None])
