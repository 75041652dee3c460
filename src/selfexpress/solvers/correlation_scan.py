"""Correlations of residuals with all rows, block by block, and what they violate.

Memory is one block of correlations, ``batch x block_size``, whatever the data's size.

Shapes: B residuals, N dictionary rows, D features, K rows of a block, A candidates,
E excluded rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from selfexpress.solvers.compiled import has_numba


@dataclass(frozen=True)
class Scan:
    """What rows outside the excluded ones add to the optimality conditions.

    Attributes
    ----------
    largest : Tensor of shape (B,)
        Largest absolute correlation.
    excess : Tensor of shape (B,)
        Sum of the squares by which correlations exceed the threshold.
    candidates : Tensor of shape (B, A), int64
        Rows that exceed the threshold most, in no particular order; -1 pads.
    """

    largest: Tensor
    excess: Tensor
    candidates: Tensor

    @classmethod
    def of_none(cls, like: Tensor) -> Scan:
        """Return the scan of no rows, which nothing in them violates."""
        none = torch.zeros_like(like)
        return cls(none, none, like.new_empty((len(like), 0), dtype=torch.int64))


def scan_correlations(
    residuals: Tensor,
    dictionary: Tensor,
    *,
    excluded: Tensor,
    threshold: Tensor,
    n_candidates: int,
    block_size: int,
) -> Scan:
    """Compare every residual with every row of the dictionary.

    Parameters
    ----------
    residuals : Tensor of shape (B, D)
    dictionary : Tensor of shape (N, D)
    excluded : Tensor of shape (B, E), int64
        Rows of the dictionary to leave out for each residual; -1 is none.
    threshold : Tensor of shape (B,)
        Correlations up to this are no violation.
    n_candidates : int
        Rows to find for each residual, A.
    block_size : int
    """
    n_rows, n_candidates = len(residuals), min(n_candidates, len(dictionary))
    values = residuals.new_zeros((n_rows, n_candidates))
    index = torch.full_like(values, -1, dtype=torch.int64)
    largest = residuals.new_zeros(n_rows)
    excess = residuals.new_zeros(n_rows, dtype=torch.float64)
    is_compiled = residuals.device.type == "cpu" and has_numba()
    for start in range(0, len(dictionary), block_size):
        block = dictionary[start : start + block_size]
        correlations = residuals @ block.T  # (B, K)
        _clear_excluded(correlations, excluded - start)
        correlations.abs_()
        if is_compiled:
            from selfexpress.solvers.compiled_scan import merge_block

            merge_block(correlations, start, threshold, values, index, largest, excess)
        else:
            values, index = _merge_largest(correlations, start, values, index)
            torch.maximum(largest, correlations.amax(dim=1), out=largest)
            over = torch.relu(correlations - threshold[:, None])
            excess += over.square_().sum(dim=1)
    index = torch.where(values > threshold[:, None], index, -1)
    return Scan(largest, excess.to(residuals.dtype), index)


def _clear_excluded(correlations: Tensor, local: Tensor) -> None:
    """Set to zero the excluded rows that lie in this block."""
    inside = (local >= 0) & (local < correlations.shape[1])
    row, column = inside.nonzero(as_tuple=True)
    correlations[row, local[row, column]] = 0


def _merge_largest(
    correlations: Tensor, start: int, values: Tensor, index: Tensor
) -> tuple[Tensor, Tensor]:
    """Keep the largest of the block and of what earlier blocks kept."""
    n_kept = values.shape[1]
    top = correlations.topk(min(n_kept, correlations.shape[1]), dim=1, sorted=False)
    both = torch.cat([values, top.values], dim=1)
    best = both.topk(n_kept, dim=1, sorted=False)
    both_index = torch.cat([index, top.indices + start], dim=1)
    return best.values, both_index.gather(1, best.indices)
