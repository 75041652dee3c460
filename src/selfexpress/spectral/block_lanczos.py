"""Leading eigenvectors of a sparse symmetric matrix by block Lanczos, for a GPU.

Many vectors at a time turn the work into matrix products, and a block of random
vectors finds eigenvalues that occur several times.

Shapes: N nodes, b vectors of a block, m vectors of the basis.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from selfexpress.errors import ConvergenceWarning
from selfexpress.ops.sparse import to_sparse_tensor

# More vectors in a block than are wanted: the last ones converge slowly.
_N_EXTRA = 10
# Blocks of a basis before it is restarted from its best vectors.
_DEPTH = 40
_MAX_RESTARTS = 30


def block_lanczos(
    matrix: sparse.csr_array,
    n_wanted: int,
    *,
    seed: int,
    tolerance: float,
    device: torch.device | str,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the largest eigenvalues, ascending, and their vectors.

    Parameters
    ----------
    matrix : csr_array of shape (N, N)
        Symmetric, with eigenvalues of size at most about 1.
    n_wanted : int
        Far fewer than N.
    seed : int
        Of the first block.
    tolerance : float
        Relative error of an eigenvalue, bounded by its squared residual over the gap
        to the next; residuals of its root are asked for.
    device : torch.device or str

    Returns
    -------
    tuple of ndarray
        Shapes (n_wanted,) and (N, n_wanted).

    Warns
    -----
    ConvergenceWarning
        If the residuals are still larger after the last restart.
    """
    operator = to_sparse_tensor(matrix, torch.float64, device)
    n_nodes = matrix.shape[0]
    block_size = min(n_wanted + _N_EXTRA, n_nodes)
    depth = min(_DEPTH, n_nodes // block_size)
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(n_nodes, block_size, generator=generator, dtype=torch.float64)
    block = start.to(device)
    for _ in range(_MAX_RESTARTS):
        values, vectors = _ritz_pairs(operator, block, depth)
        residuals = operator @ vectors - vectors * values
        worst = residuals[:, -n_wanted:].norm(dim=0).max()
        if float(worst) <= tolerance**0.5:
            break
        block = vectors
    else:
        warnings.warn(
            f"Eigenvectors should have residuals of at most {tolerance**0.5:.1e}, but "
            f"the largest is {float(worst):.1e} after {_MAX_RESTARTS} restarts; labels "
            "may suffer. Use device='cpu', which solves otherwise.",
            ConvergenceWarning,
            stacklevel=2,
        )
    chosen = slice(block_size - n_wanted, block_size)
    return values[chosen].cpu().numpy(), vectors[:, chosen].cpu().numpy()


def _ritz_pairs(operator: Tensor, block: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """Return as many approximate eigenpairs as the block has vectors.

    Every new block is made orthogonal to all before it, not only to the last two:
    that is what keeps copies of an eigenvalue apart.
    """
    n_nodes, size = block.shape
    basis = block.new_zeros(n_nodes, depth * size)  # (N, m)
    projected = block.new_zeros(depth * size, depth * size)  # (m, m)
    block = _orthonormal(block, basis[:, :0])
    for place in range(0, depth * size, size):
        basis[:, place : place + size] = block
        known = basis[:, : place + size]
        image = operator @ block
        projected[: place + size, place : place + size] = known.T @ image
        if place + size < depth * size:
            block = _orthonormal(image, known)
    upper = torch.triu(projected)
    values, rotation = torch.linalg.eigh(upper + torch.triu(projected, 1).T)
    return values[-size:], basis @ rotation[:, -size:]


def _orthonormal(block: Tensor, basis: Tensor) -> Tensor:
    """Return an orthonormal basis of a block's part outside a basis.

    A vector without such a part, as when the basis holds all that the first block
    leads to, is replaced by a random one: other eigenvectors lie there still. Twice
    is enough: the second round removes what rounding leaves of the first.
    """
    block = _outside(block, basis)
    is_lost = block.norm(dim=0) < 0.5
    if bool(is_lost.any()):
        generator = torch.Generator(block.device).manual_seed(basis.shape[1])
        others = torch.empty_like(block).normal_(generator=generator)
        block = torch.where(is_lost, others / others.norm(dim=0), block)
    return _outside(block, basis)


def _outside(block: Tensor, basis: Tensor) -> Tensor:
    """Return a block's part outside a basis, made orthonormal by Cholesky's factor.

    A small shift lets the factorisation pass when vectors are nearly dependent, and
    leaves a vector short that is rounding alone.
    """
    block = block - basis @ (basis.T @ block)
    gram = block.T @ block
    gram.diagonal().add_(1e-14 * gram.diagonal().sum() + 1e-24)
    factor = torch.linalg.cholesky_ex(gram)[0]
    orthonormal: Tensor = torch.linalg.solve_triangular(factor, block.T, upper=False).T
    return orthonormal
