"""Principal axes of rows that are never all in memory.

Shapes: N rows, D dimensions, K axes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import scipy.linalg
import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class PrincipalAxes:
    """A reduction to few dimensions, followed by scaling to unit norm.

    Attributes
    ----------
    mean : Tensor of shape (D,)
        Subtracted first.
    axes : Tensor of shape (K, D)
        Orthonormal rows, the widest spread first.
    """

    mean: Tensor
    axes: Tensor

    def reduce(self, rows: Tensor) -> Tensor:
        """Return rows of shape (N, D) as unit rows of shape (N, K)."""
        mean, axes = self.mean.to(rows.device), self.axes.to(rows.device)
        return F.normalize((rows - mean) @ axes.T, dim=1)

    def tensors(self) -> dict[str, Tensor]:
        """Return what makes up the reduction, by name."""
        return {"mean": self.mean, "axes": self.axes}


@torch.no_grad()
def fit_principal_axes(
    blocks: Iterable[Tensor], n_components: int, *, is_centred: bool = True
) -> PrincipalAxes:
    """Find the directions along which rows spread most.

    Memory does not grow with the number of rows: blocks enter a D x D matrix.

    Parameters
    ----------
    blocks : iterable of Tensor of shape (any, D)
    n_components : int
        Number K of axes.
    is_centred : bool
        Whether spread is measured from the mean or from the origin.
    """
    count, total, products = 0, torch.zeros(()), torch.zeros(())
    for block in blocks:
        rows = block.double()
        count += len(rows)
        total = total.to(rows) + rows.sum(dim=0)
        products = products.to(rows) + rows.T @ rows
    mean = total / count if is_centred else torch.zeros_like(total)
    spread = products / count - torch.outer(mean, mean)
    n_features = len(spread)
    # LAPACK on the host finds the few axes wanted, and the same ones everywhere.
    _, vectors = scipy.linalg.eigh(
        spread.cpu().numpy(),
        subset_by_index=(n_features - n_components, n_features - 1),
    )
    axes = torch.from_numpy(vectors).T.flip(0)  # (K, D), largest eigenvalue first
    # An axis and its negative are the same: fix the sign by the largest entry.
    largest = axes.gather(1, axes.abs().argmax(dim=1, keepdim=True))
    return PrincipalAxes(mean.float().cpu(), (axes * largest.sign()).float())
