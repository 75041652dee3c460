"""Compiled passes of the scan: residuals, and the largest entries of a block.

Shapes: B residuals, N dictionary rows, D features, K rows of a block, A candidates,
W places of a working set.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from torch import Tensor

from selfexpress.solvers.compiled import for_row_ranges

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
        Candidates so far as a heap, the smallest first; 0 and -1 where there is none.
    """
    tensors = (correlations, threshold, values, index, largest, excess)
    arrays = [tensor.numpy() for tensor in tensors]

    def kernel(rows: slice) -> None:
        _merge(start, *(array[rows] for array in arrays))

    for_row_ranges(kernel, len(correlations))


@njit(nogil=True, cache=True)
def _merge(start, correlations, threshold, values, index, largest, excess):  # type: ignore[no-untyped-def]
    for row in range(len(correlations)):
        limit, kept, places = threshold[row], values[row], index[row]
        for first in range(0, correlations.shape[1], STRETCH):
            stretch = correlations[row, first : first + STRETCH]
            peak = _largest(stretch)
            largest[row] = max(largest[row], peak)
            if peak <= limit:
                continue
            excess[row] += _squared_excess(stretch, limit)
            bar = max(limit, kept[0])
            if peak <= bar:
                continue
            for offset in range(len(stretch)):
                if stretch[offset] > bar:
                    _replace_weakest(
                        kept, places, stretch[offset], start + first + offset
                    )
                    bar = max(limit, kept[0])


@njit(cache=True)
def _replace_weakest(values, index, value, position):  # type: ignore[no-untyped-def]
    """Put an entry in the place of the smallest, the first of a binary heap."""
    place, size = 0, len(values)
    while True:
        child = 2 * place + 1
        if child + 1 < size and values[child + 1] < values[child]:
            child += 1
        if child >= size or values[child] >= value:
            break
        values[place], index[place] = values[child], index[child]
        place = child
    values[place], index[place] = value, position


@njit(cache=True, fastmath={"nnan", "nsz", "reassoc"})
def _largest(values):  # type: ignore[no-untyped-def]
    peak = values[0]
    for value in values:
        peak = max(peak, value)
    return peak


@njit(cache=True, fastmath={"nnan", "nsz", "reassoc"})
def _squared_excess(values, threshold):  # type: ignore[no-untyped-def]
    total = zero = threshold - threshold  # in the precision of the values
    for value in values:
        over = max(value - threshold, zero)
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
