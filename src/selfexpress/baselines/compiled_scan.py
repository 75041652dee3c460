"""Compiled passes of the scan: residuals, and the largest entries of a block.

Shapes: B residuals, N dictionary rows, D features, K rows of a block, A candidates,
W places of a working set.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from torch import Tensor

from selfexpress.baselines.compiled import for_row_ranges

# Entries looked at together: most stretches hold nothing above the threshold.
STRETCH = 64


def merge_block(
    correlations: Tensor,
    start: int,
    threshold: Tensor,
    values: Tensor,
    index: Tensor,
    largest: Tensor,
    excess: Tensor,
) -> None:
    """Update candidates, largest and excess in place with a block's correlations.

    Unlike a sort this costs about one comparison for an entry.

    Parameters
    ----------
    correlations : Tensor of shape (B, K)
        Absolute values.
    start : int
        Position of the block's first row.
    threshold, largest, excess : Tensor of shape (B,)
    values, index : Tensor of shape (B, A)
        Candidates so far; 0 and -1 where there is none.
    """
    tensors = (correlations, threshold, values, index, largest, excess)
    arrays = [tensor.numpy() for tensor in tensors]

    def kernel(rows: slice) -> None:
        _merge(start, *(array[rows] for array in arrays))

    for_row_ranges(kernel, len(correlations))


@njit(nogil=True, cache=True)
def _merge(start, correlations, threshold, values, index, largest, excess):  # type: ignore[no-untyped-def]
    n_columns = correlations.shape[1]
    for row in range(len(correlations)):
        weakest = values[row].argmin()
        for first in range(0, n_columns, STRETCH):
            stretch = correlations[row, first : first + STRETCH]
            peak = _largest(stretch)
            largest[row] = max(largest[row], peak)
            if peak > threshold[row]:
                excess[row] += _squared_excess(stretch, threshold[row])
            if peak <= max(threshold[row], values[row, weakest]):
                continue
            for place in range(len(stretch)):
                if stretch[place] > values[row, weakest]:
                    values[row, weakest] = stretch[place]
                    index[row, weakest] = start + first + place
                    weakest = values[row].argmin()


@njit(cache=True, fastmath={"nnan", "nsz", "reassoc"})
def _largest(values):  # type: ignore[no-untyped-def]
    peak = values[0]
    for value in values:
        peak = max(peak, value)
    return peak


@njit(cache=True, fastmath={"nnan", "nsz", "reassoc"})
def _squared_excess(values, threshold):  # type: ignore[no-untyped-def]
    total = np.float64(0)
    for value in values:
        over = max(value - threshold, 0)
        total += over * over
    return total


def exact_residuals(
    targets: Tensor, dictionary: Tensor, members: Tensor, coefficients: Tensor
) -> Tensor:
    """Return ``targets`` less their expressions, summed in float64.

    Parameters
    ----------
    targets : Tensor of shape (B, D)
    dictionary : Tensor of shape (N, D)
    members, coefficients : Tensor of shape (B, W)
        Members whose coefficient is 0 are not looked up.
    """
    residuals = torch.empty_like(targets)
    atoms = dictionary.contiguous().numpy()
    tensors = (targets, members, coefficients, residuals)
    arrays = [tensor.contiguous().numpy() for tensor in tensors]

    def kernel(rows: slice) -> None:
        _subtract(atoms, *(array[rows] for array in arrays))

    for_row_ranges(kernel, len(targets))
    return residuals


@njit(nogil=True, cache=True)
def _subtract(dictionary, targets, members, coefficients, residuals):  # type: ignore[no-untyped-def]
    for row in range(len(targets)):
        total = targets[row].astype(np.float64)
        for place in range(members.shape[1]):
            coefficient = np.float64(coefficients[row, place])
            if coefficient != 0.0:
                atom = dictionary[members[row, place]]
                for k in range(len(total)):
                    total[k] -= coefficient * atom[k]
        residuals[row] = total
