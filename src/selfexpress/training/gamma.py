"""The smallest gamma for which self-expression has anything but zeros to say."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from selfexpress import distributed
from selfexpress.errors import DegenerateError
from selfexpress.ops.memory import with_smaller_blocks
from selfexpress.ops.self_expression import without_self
from selfexpress.rows.sources import RowSource

_MAX_ROWS = 2000


@dataclass(frozen=True)
class SmallestGamma:
    """Bounds above which the convex problem has non-zero solutions.

    Attributes
    ----------
    any_row : float
        Below it the solution of every row is zero.
    every_row : float
        Above it no row's solution is zero (rows orthogonal to all others aside).
    typical : float
        Median over the rows.
    is_exact : bool
        Whether every row was looked at.
    """

    any_row: float
    every_row: float
    typical: float
    is_exact: bool


def smallest_gamma(
    source: RowSource, l1_ratio: float, *, block_size: int
) -> SmallestGamma:
    """Return the gammas at which coefficients start to be non-zero.

    Zero solves row j exactly while ``gamma |<x_i, x_j>| <= l1_ratio`` for all
    ``i != j``. At most 2000 rows j, evenly spaced, are looked at.

    Parameters
    ----------
    source : RowSource
    l1_ratio : float
    block_size : int
    """
    n_rows = min(len(source), _MAX_ROWS)
    rows = torch.arange(n_rows) * len(source) // n_rows
    queries = source.take(rows)  # (B, D)
    rows = rows.to(queries.device)

    def largest_products(size: int) -> Tensor:
        largest = queries.new_zeros(n_rows)
        for block in source.blocks(size):
            products = without_self(queries @ block.rows.T, rows, block.index).abs()
            largest = torch.maximum(largest, products.amax(dim=1))
        return largest

    most = min(block_size, len(source))
    own = with_smaller_blocks(largest_products, most, what="The look for gamma")
    largest = distributed.largest(own)
    largest = largest[largest > 0]
    if len(largest) == 0:
        infinity = float("inf")
        return SmallestGamma(infinity, infinity, infinity, n_rows == len(source))
    return SmallestGamma(
        any_row=l1_ratio / float(largest.max()),
        every_row=l1_ratio / float(largest.min()),
        typical=l1_ratio / float(largest.median()),
        is_exact=n_rows == len(source),
    )


def require_large_enough(gamma: float, bound: SmallestGamma) -> None:
    """Refuse a gamma for which every coefficient of the optimum is zero.

    A bound from a part of the rows refuses nothing: others may be more alike.
    """
    if not bound.is_exact:
        return
    if bound.any_row == float("inf"):
        raise DegenerateError(
            "Some rows must not be orthogonal to each other, but all are, and no gamma "
            "makes a coefficient non-zero. Check that X holds what it should."
        )
    if gamma <= bound.any_row:
        raise DegenerateError(
            f"gamma must exceed {bound.any_row:.4g} for any coefficient to be non-zero "
            f"on this data, and {bound.every_row:.4g} for every row to have one, got "
            f"{gamma:.4g}. Use for example {50 * bound.typical:.4g}."
        )


def require_nonzero(n_nonzero: int, gamma: float, bound: SmallestGamma) -> None:
    """Refuse coefficients that are all zero, and name the gamma that is needed.

    Raises
    ------
    DegenerateError
    """
    if n_nonzero:
        return
    raise DegenerateError(
        f"Some coefficient must not be zero, but with gamma={gamma:.4g} the "
        f"network learned that all are; the optimum has some above gamma="
        f"{bound.any_row:.4g} and some for every row above {bound.every_row:.4g}. "
        f"Raise gamma, for example to {4 * max(gamma, bound.every_row):.4g}, use "
        "start='random', or lower learning_rate."
    )
