"""Leading eigenvectors of a sparse symmetric matrix by filtered subspaces, for a CPU.

Chebyshev polynomials of the matrix raise the wanted part of a block of vectors over the
rest: products of a sparse matrix and many vectors, which cost little beside the long
orthogonal bases of a Lanczos method. Blocks tell equal eigenvalues apart.

Shapes: N nodes, b vectors of a block.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from selfexpress.ops.sparse import to_sparse_tensor
from selfexpress.solvers.compiled import in_threads

# Vectors beyond those wanted: the last ones of a block converge slowly.
_SHARE_OF_EXTRA = 0.2
_N_EXTRA = 10
# Of the polynomial. In the first round the vectors are random, and a high one would
# leave nothing but the first eigenvector of them in single precision.
_FIRST_DEGREE = 8
_DEGREE = 16
_MAX_ROUNDS = 15
# Residuals that are small enough, relative to the last eigenvalue of the Laplacian: it
# says how close others may be. k-means sees no difference below the second, and single
# precision goes no further than the third.
_TOLERANCE = 1e-2
_LARGEST_RESIDUAL = 1e-3
_SMALLEST_RESIDUAL = 1e-5
# Vectors filtered at a time.
_N_TOGETHER = 64


def filtered_eigenvectors(
    matrix: sparse.csr_array, n_wanted: int, *, seed: int, n_threads: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return the largest eigenvalues, ascending, and their vectors.

    Parameters
    ----------
    matrix : csr_array of shape (N, N)
        Symmetric, with eigenvalues from -1 to 1.
    n_wanted : int
        Far fewer than N.
    seed : int
        Of the first block.
    n_threads : int

    Returns
    -------
    tuple of ndarray or None
        Shapes (n_wanted,) and (N, n_wanted). None if they do not converge, as where
        wanted eigenvalues hardly differ from others.
    """
    operator = to_sparse_tensor(matrix, torch.float32, "cpu")
    n_nodes = matrix.shape[0]
    size = min(n_nodes, n_wanted + max(_N_EXTRA, int(_SHARE_OF_EXTRA * n_wanted)))
    generator = torch.Generator().manual_seed(seed)
    block = torch.randn(n_nodes, size, generator=generator)
    cut, degree = 0.0, _FIRST_DEGREE
    for _ in range(_MAX_ROUNDS):
        parts = in_threads(
            lambda part: _filtered(operator, part, cut, degree),  # noqa: B023
            block.split(_N_TOGETHER, dim=1),
            n_threads,
        )
        block = torch.cat(parts, dim=1)
        basis = torch.linalg.qr(block / block.norm(dim=0))[0]
        image = operator @ basis
        values, rotation = torch.linalg.eigh(basis.T @ image)
        block = basis @ rotation
        residuals = (image @ rotation - block * values)[:, -n_wanted:].norm(dim=0)
        tolerance = _TOLERANCE * (1 - float(values[-n_wanted]))
        tolerance = min(max(tolerance, _SMALLEST_RESIDUAL), _LARGEST_RESIDUAL)
        if float(residuals.max()) <= tolerance:
            break
        cut, degree = max(float(values[0]), -0.5), _DEGREE
    else:
        return None
    # Eigenvalues near 0 and 1 must be right in double precision.
    exact = np.linalg.qr(block[:, -n_wanted:].double().numpy())[0]
    eigenvalues, turned = np.linalg.eigh(exact.T @ (matrix @ exact))
    return eigenvalues, exact @ turned


def _filtered(operator: Tensor, block: Tensor, cut: float, degree: int) -> Tensor:
    """Return a Chebyshev polynomial of the matrix, small from -1 to cut, of a block."""
    middle, half = (cut - 1) / 2, (cut + 1) / 2
    before, block = block, (operator @ block - middle * block) / half
    for _ in range(degree - 1):
        following = operator @ block
        following.sub_(block, alpha=middle).mul_(2 / half).sub_(before)
        before, block = block, following
    return block
