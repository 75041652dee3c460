"""Sparse matrices as torch multiplies them."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from scipy import sparse
from torch import Tensor


def sparse_tensor(
    starts: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]
) -> Tensor:
    """Return a matrix in CSR form, of parts that are known to fit together."""
    with warnings.catch_warnings():
        # torch announces that sparse tensors are in beta and go unchecked.
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
        warnings.filterwarnings("ignore", message="Sparse invariant checks")
        return torch.sparse_csr_tensor(
            starts, columns, values, size=shape, check_invariants=False
        )


def to_sparse_tensor(
    matrix: sparse.csr_array, dtype: torch.dtype, device: torch.device | str
) -> Tensor:
    """Copy a matrix of scipy's to a device."""
    place_type = np.int32 if matrix.nnz < 2**31 else np.int64
    places = (matrix.indptr.astype(place_type), matrix.indices.astype(place_type))
    starts, columns, values = (
        torch.from_numpy(part).to(device) for part in (*places, matrix.data)
    )
    return sparse_tensor(starts, columns, values.to(dtype), matrix.shape)
