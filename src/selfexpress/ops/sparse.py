"""Sparse matrices as torch multiplies them, and the connected parts of a graph."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
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


def normalized_adjacency(affinity: sparse.csr_array) -> sparse.csr_array:
    """Return ``D^{-1/2} A D^{-1/2}`` in float64; isolated nodes keep their zeros."""
    degree = np.asarray(affinity.sum(axis=1), dtype=np.float64).ravel()
    scale = 1 / np.sqrt(np.where(degree > 0, degree, 1))
    data = affinity.data * np.repeat(scale, np.diff(affinity.indptr))
    data *= scale[affinity.indices]
    return sparse.csr_array(
        (data, affinity.indices, affinity.indptr), shape=affinity.shape
    )


# A graph of data that is in one piece is walked through in fewer.
_MOST_STEPS = 64


def component_of_nodes(affinity: sparse.csr_array) -> NDArray[np.int32]:
    """Return the component of each node of a symmetric graph, counted from 0.

    Graphs of coefficients are large and mostly in one piece. That is quick to see, and
    spares the copies that a search for all components makes.
    """
    if _is_in_one_piece(affinity):
        return np.zeros(affinity.shape[0], dtype=np.int32)
    component: NDArray[np.int32] = connected_components(affinity, directed=False)[1]
    return component


def _is_in_one_piece(affinity: sparse.csr_array) -> bool:
    """Say whether a few steps from the first node reach all; False if not sure."""
    is_reached = np.zeros(affinity.shape[0], dtype=bool)
    is_reached[:1] = True
    for _ in range(_MOST_STEPS):
        n_before = is_reached.sum()
        is_reached |= affinity @ is_reached.astype(affinity.dtype) > 0
        if is_reached.sum() in (n_before, len(is_reached)):
            break
    return bool(is_reached.all())
