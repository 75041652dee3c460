"""Sparse rows as two dense tensors, the form a GPU works on.

Shapes: M rows, k entries of each, C columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from selfexpress.ops.sparse import sparse_tensor


@dataclass(frozen=True)
class SparseRows:
    """Rows of a matrix, all with room for the same number of entries.

    Attributes
    ----------
    column : Tensor of shape (M, k), int64
        In no order.
    value : Tensor of shape (M, k), float32
        0 where a row has no more entries.
    n_columns : int
        C.
    """

    column: Tensor
    value: Tensor
    n_columns: int

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.column)

    @classmethod
    def from_csr(
        cls, matrix: sparse.csr_array, device: torch.device | str
    ) -> SparseRows:
        """Copy a matrix to a device."""
        lengths = torch.from_numpy(np.diff(matrix.indptr)).to(device)
        width = max(1, int(lengths.max())) if len(lengths) else 1
        is_stored = torch.arange(width, device=device) < lengths[:, None]  # (M, k)
        column = torch.zeros(is_stored.shape, dtype=torch.int64, device=device)
        value = torch.zeros(is_stored.shape, device=device)
        column[is_stored] = torch.from_numpy(matrix.indices).to(device, torch.int64)
        value[is_stored] = torch.from_numpy(matrix.data).to(device, torch.float32)
        return cls(column, value, matrix.shape[1])

    def to_csr(self) -> sparse.csr_array:
        """Return the entries that are not 0 as a csr_array, columns in order."""
        column, order = self.column.sort(dim=1)
        value = self.value.gather(1, order)
        is_stored = value != 0
        ends = is_stored.sum(dim=1).cumsum(dim=0).cpu().numpy()
        return sparse.csr_array(
            (
                value[is_stored].cpu().numpy(),
                column[is_stored].int().cpu().numpy(),
                np.concatenate([[0], ends]),
            ),
            shape=(len(self), self.n_columns),
        )

    def part(self, first: int, last: int) -> SparseRows:
        """Return rows ``first`` to ``last``, the latter excluded."""
        return SparseRows(
            self.column[first:last], self.value[first:last], self.n_columns
        )

    def normalized(self) -> SparseRows:
        """Return the rows scaled to unit l2 norm; empty rows stay empty."""
        norms = self.value.norm(dim=1, keepdim=True)
        value = self.value / torch.where(norms > 0, norms, torch.ones_like(norms))
        return SparseRows(self.column, value, self.n_columns)

    def sizes(self) -> Tensor:
        """Return the absolute values as a sparse tensor of shape (M, C)."""
        n_rows, width = self.value.shape
        starts = torch.arange(n_rows + 1, device=self.value.device) * width
        columns, values = self.column.flatten(), self.value.abs().flatten()
        return sparse_tensor(starts, columns, values, (n_rows, self.n_columns))

    def dense(self) -> Tensor:
        """Return the rows with all their zeros, float32 of shape (M, C)."""
        dense = self.value.new_zeros(len(self), self.n_columns)
        return dense.scatter_add_(1, self.column, self.value)


def normalize_rows(coefficients: sparse.csr_array) -> sparse.csr_array:
    """Scale every row to unit l2 norm; empty rows stay empty."""
    matrix = sparse.csr_array(coefficients, dtype=np.float32, copy=True)
    matrix.eliminate_zeros()
    squares = sparse.csr_array(
        (np.square(matrix.data, dtype=np.float64), matrix.indices, matrix.indptr),
        shape=matrix.shape,
    )
    norms = np.sqrt(squares.sum(axis=1)).astype(np.float32)
    matrix.data /= np.repeat(norms, np.diff(matrix.indptr))
    return matrix
