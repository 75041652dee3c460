"""Rows of coefficients, collected in any order into one sparse matrix.

Shapes: B rows of a batch, W places, some of them empty.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse
from torch import Tensor


class CollectedRows:
    """A sparse matrix that is written a few rows at a time.

    Parameters
    ----------
    shape : tuple of int
    n_nonzero : int, optional
        Entries kept of each row, the largest in absolute value; all unless given.
    """

    def __init__(self, shape: tuple[int, int], n_nonzero: int | None = None) -> None:
        self._shape = shape
        self._n_nonzero = n_nonzero
        self._parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def add(self, place: Tensor, columns: Tensor, values: Tensor) -> None:
        """Write rows; places whose value is 0 are empty.

        Parameters
        ----------
        place : Tensor of shape (B,)
            Positions of the rows, each given once.
        columns, values : Tensor of shape (B, W)
        """
        if self._n_nonzero is not None and values.shape[1] > self._n_nonzero:
            order = values.abs().topk(self._n_nonzero, dim=1).indices
            columns, values = columns.gather(1, order), values.gather(1, order)
        is_used = values != 0
        rows = place[:, None].expand_as(values)
        row, column, value = (
            entries[is_used].cpu().numpy() for entries in (rows, columns, values)
        )
        # 32 bits: the indices of many rows are most of what is held.
        self._parts.append((row.astype(np.int32), column.astype(np.int32), value))

    def matrix(self, dtype: torch.dtype) -> sparse.csr_array:
        """Return what was written, columns in order."""
        empty = np.zeros(0, dtype=torch.zeros(0, dtype=dtype).numpy().dtype)
        parts = [*self._parts, (empty.astype(np.int32), empty.astype(np.int32), empty)]
        row, column, value = (np.concatenate(part) for part in zip(*parts, strict=True))
        matrix = sparse.csr_array((value, (row, column)), shape=self._shape)
        matrix.sort_indices()
        return matrix
