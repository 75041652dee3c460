"""The paper's formulas: soft threshold, elastic net, unit rows.

Shapes: B queries, K keys, D features.
"""

from __future__ import annotations

import torch
from torch import Tensor


def soft_threshold(values: Tensor, threshold: Tensor | float) -> Tensor:
    """Return ``sign(t) * max(0, |t| - b)`` of every entry t, for threshold b."""
    return torch.sign(values) * torch.relu(values.abs() - threshold)


def elastic_net(coefficients: Tensor, l1_ratio: float) -> Tensor:
    """Return the sum over entries c of ``l1_ratio |c| + (1 - l1_ratio) / 2 c^2``.

    The gradient at c = 0 is 0, which lies in the sub-differential.
    """
    l1_norm = coefficients.abs().sum()
    return l1_ratio * l1_norm + (1 - l1_ratio) / 2 * coefficients.square().sum()


def without_self(
    coefficients: Tensor, query_index: Tensor, key_index: Tensor
) -> Tensor:
    """Set to zero the coefficients, (B, K), by which a row would express itself.

    The indices, (B,) and (K,), are positions of queries and keys in the same source.
    """
    is_self = query_index[:, None] == key_index[None, :]  # (B, K)
    return coefficients.masked_fill(is_self, 0)


def unit_rows(rows: Tensor) -> Tensor:
    """Scale every row to unit l2 norm; a row of zeros stays one.

    Rows are first divided by their largest entry, so that squares neither overflow
    nor vanish.
    """
    largest = rows.abs().amax(dim=1, keepdim=True)
    rows = rows / torch.where(largest > 0, largest, torch.ones_like(largest))
    norms = rows.norm(dim=1, keepdim=True)
    return rows / torch.where(norms > 0, norms, torch.ones_like(norms))
