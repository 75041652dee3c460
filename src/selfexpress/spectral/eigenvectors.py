"""Eigenvectors of a graph's normalised Laplacian.

Shapes: N nodes, E eigenvectors.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import eigsh

from selfexpress.ops.sparse import component_of_nodes, normalized_adjacency
from selfexpress.spectral.block_lanczos import block_lanczos
from selfexpress.spectral.filtered import filtered_eigenvectors

# Below this an eigenvalue is 0 but for rounding.
SMALLEST_EIGENVALUE = 1e-6

# Up to here a dense eigen-decomposition is faster than an iterative one.
_DENSE_SIZE = 800

# Of block Lanczos, which finds eigenvalues that nearly agree by itself. Relative;
# k-means sees no difference below it, and the last digits cost most.
_EIGENVALUE_TOLERANCE = 1e-7


def laplacian_eigenvectors(
    affinity: sparse.csr_array,
    n_eigenvectors: int,
    *,
    seed: int,
    component: NDArray[np.int32] | None = None,
    device: torch.device | str = "cpu",
    n_threads: int | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the smallest eigenvalues of the normalised Laplacian and their vectors.

    The Laplacian is ``I - D^{-1/2} A D^{-1/2}``; an isolated node counts as one with
    eigenvalue 1. Signs are fixed so that the entry of largest size is positive.

    Connected components are solved one by one. Together they would have eigenvalue 0
    as often as there are components, and an iterative solver misses copies. They are
    looked for if ``component``, that of each node, is not given. Given ``n_threads``,
    vectors are as good as k-means needs, found by ``spectral.filtered``.
    """
    adjacency = normalized_adjacency(affinity)
    if component is None:
        component = component_of_nodes(affinity)
    sizes = np.bincount(component)
    largest_first = np.argsort(-sizes, kind="stable")
    # Each component of several nodes has one vector of eigenvalue 0, and any of them
    # could hold all the others; isolated nodes, of eigenvalue 1, only fill up.
    n_each = 1 + max(0, n_eigenvectors - int((sizes > 1).sum()))

    eigenvalues, eigenvectors = [], []
    for chosen in largest_first[:n_eigenvectors]:
        members = np.flatnonzero(component == chosen)
        is_all = len(members) == len(component)
        part = adjacency if is_all else adjacency[members][:, members]
        values, vectors = _leading_eigenvectors(
            part,
            min(n_each, len(members)),
            seed=seed,
            device=torch.device(device),
            n_threads=n_threads,
        )
        padded = np.zeros((affinity.shape[0], len(values)))
        padded[members] = vectors
        eigenvalues.append(1 - values)
        eigenvectors.append(padded)
    values, vectors = np.concatenate(eigenvalues), np.hstack(eigenvectors)
    order = np.argsort(values, kind="stable")[:n_eigenvectors]
    return values[order], _fix_signs(vectors[:, order])


def unit_rows(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale rows to unit length; rows of zeros stay."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    embedding: NDArray[np.float64] = vectors / np.where(norms > 0, norms, 1)
    return embedding


def _leading_eigenvectors(
    matrix: sparse.csr_array,
    n_wanted: int,
    *,
    seed: int,
    device: torch.device,
    n_threads: int | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the largest eigenvalues of a symmetric matrix and their vectors."""
    n_nodes = matrix.shape[0]
    if n_nodes <= max(_DENSE_SIZE, 3 * n_wanted):
        values, vectors = np.linalg.eigh(matrix.toarray())
        return values[-n_wanted:], vectors[:, -n_wanted:]
    if device.type != "cpu":
        return block_lanczos(
            matrix, n_wanted, seed=seed, tolerance=_EIGENVALUE_TOLERANCE, device=device
        )
    if n_threads:
        found = filtered_eigenvectors(matrix, n_wanted, seed=seed, n_threads=n_threads)
        if found is not None:
            return found
    values, vectors = eigsh(
        matrix,
        k=n_wanted,
        which="LA",
        v0=np.random.default_rng(seed).uniform(-1, 1, n_nodes),
        ncv=min(n_nodes, 4 * n_wanted + 20),
        # To the last digit: before that, eigenvalues that nearly agree, as of groups
        # that hardly hang together, are taken for one.
        tol=0,
    )
    return values, vectors


def _fix_signs(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    largest = np.abs(vectors).argmax(axis=0)
    signs = np.sign(vectors[largest, np.arange(vectors.shape[1])])
    fixed: NDArray[np.float64] = vectors * signs
    return fixed
