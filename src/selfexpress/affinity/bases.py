"""A small orthonormal basis of each cluster, and how near rows are to its span.

Shapes: R references, M rows, D features, S vectors of all bases, k clusters.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# Of the squared length of a cluster's rows that its basis holds. More would span the
# noise of text, less would lose directions of subspaces.
_HELD = 0.95
# Rows of a cluster for each vector of its basis: fewer would be spanned one by one.
_ROWS_A_VECTOR = 3


@dataclass(frozen=True)
class ClusterBases:
    """Bases of all clusters, one below the other.

    Attributes
    ----------
    vectors : Tensor of shape (S, D)
    owner : Tensor of shape (S,), int64
        The cluster of each vector.
    n_clusters : int
    """

    vectors: Tensor
    owner: Tensor
    n_clusters: int

    @classmethod
    def of(cls, rows: Tensor, labels: Tensor, n_clusters: int) -> ClusterBases:
        """Find the leading directions of each cluster's rows, (R, D).

        Parameters
        ----------
        rows : Tensor of shape (R, D)
            Of unit length.
        labels : Tensor of shape (R,), int64
        n_clusters : int
        """
        bases = [_leading(rows[labels == cluster]) for cluster in range(n_clusters)]
        sizes = torch.tensor([len(basis) for basis in bases], device=rows.device)
        owner = torch.arange(n_clusters, device=rows.device).repeat_interleave(sizes)
        return cls(torch.cat(bases), owner, n_clusters)

    def residuals(self, rows: Tensor) -> Tensor:
        """Return the squared distance of unit rows to each span, (M, k)."""
        squares = (rows @ self.vectors.T).square_()  # (M, S)
        held = rows.new_zeros(len(rows), self.n_clusters)
        held.index_add_(1, self.owner, squares)
        return (1 - held).clamp_min_(0)


def _leading(rows: Tensor) -> Tensor:
    """Return the directions that hold most of the rows, as orthonormal rows."""
    if len(rows) == 0:
        return rows
    is_tall = len(rows) > rows.shape[1]
    wide = rows.double()
    values, vectors = torch.linalg.eigh(wide.T @ wide if is_tall else wide @ wide.T)
    values = values.flip(0).clamp_min(0)
    held = values.cumsum(0) / values.sum().clamp_min(1e-30)
    most = 1 + len(rows) // _ROWS_A_VECTOR
    n_kept = min(int((held < _HELD).sum()) + 1, most, len(values))
    chosen = vectors.flip(1)[:, :n_kept]
    if not is_tall:
        roots = values[:n_kept].sqrt().clamp_min(1e-15)
        chosen = (wide.T @ chosen) / roots
    basis: Tensor = chosen.T.to(rows.dtype).contiguous()
    return basis
