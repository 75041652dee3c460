"""Self-expression with the l2 penalty alone, in closed form.

With P the inverse of ``X X^T + I / gamma`` the coefficients of row j by all others are
``-P_ij / P_jj``. Through the D x D matrix ``M = X^T X + I / gamma`` this is
``x_i^T M^-1 x_j / (1 - x_j^T M^-1 x_j)``: one factorisation serves all rows.

Shapes: M rows to express, N rows, D features, B rows of a batch, K rows of a block.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from selfexpress.ops.precision import float32_products
from selfexpress.solvers.certificate import Certificate
from selfexpress.solvers.collected_rows import CollectedRows
from selfexpress.solvers.problem import ElasticNetConfig, Expression, Progress

# No coefficient is zero: keeping all of them would be an N x N matrix.
DEFAULT_NONZERO = 1000


def least_squares_expression(
    rows: Tensor,
    config: ElasticNetConfig,
    *,
    index: Tensor,
    progress: Progress | None = None,
) -> Expression:
    """Express rows by all others with ``l1_ratio = 0``, keeping the largest entries.

    Keeps ``config.n_nonzero`` entries of each row, 1000 unless given. The certificate
    is that of the solution before entries were dropped. No matrix larger than the rows
    is formed.

    Parameters
    ----------
    rows : Tensor of shape (N, D)
    config : ElasticNetConfig
    index : Tensor of shape (M,), int64
    progress : callable, optional
    """
    n_kept = min(config.n_nonzero or DEFAULT_NONZERO, len(rows))
    coefficients = CollectedRows((len(index), len(rows)))
    proofs = []
    batch_size = config.batch_size or 512
    with float32_products("highest"):
        problem = _RidgeProblem(rows, config.gamma, config.block_size or 8192)
        for start in range(0, len(index), batch_size):
            own = index[start : start + batch_size]
            columns, values, residuals = problem.largest(own, n_kept)
            place = torch.arange(start, start + len(own), device=rows.device)
            coefficients.add(place, columns, values)
            proofs.append(problem.proof(own, residuals).cpu().numpy())
            if progress is not None:
                progress(start + len(own), len(index))
    violation, gap, objective = np.concatenate(proofs, axis=1)
    proof = Certificate(*map(torch.from_numpy, (violation, gap, objective)))
    proof.warn_if_open(config.tol, after="with the rounding of a direct solution,")
    return Expression(
        coefficients.matrix(rows.dtype),
        kkt_violation=violation,
        duality_gap=gap,
        objective=objective,
        n_iter=np.ones(len(index), dtype=np.int64),
    )


class _RidgeProblem:
    """The factorised problem, read a block of coefficients at a time."""

    def __init__(self, rows: Tensor, gamma: float, block_size: int) -> None:
        self.rows = rows
        self.gamma = gamma
        self.block_size = block_size
        self.left: Tensor
        self.right: Tensor | None = None
        if len(rows) <= rows.shape[1]:
            self.left = _inverse(rows.double(), gamma).to(rows.dtype)
        else:
            self.left, self.right = _factors(rows.double(), gamma, rows.dtype)

    def blocks(self, own: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Yield the start of each block and its coefficients of the rows ``own``."""
        chosen = self.left[own]  # (B, N) or (B, D)
        for start in range(0, len(self.rows), self.block_size):
            places = slice(start, start + self.block_size)
            if self.right is None:
                block = chosen[:, places]  # (B, K)
            else:
                block = chosen @ self.right[places].T
            inside = (own >= start) & (own < start + block.shape[1])
            block[inside, own[inside] - start] = 0
            yield start, block

    def largest(self, own: Tensor, n_kept: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return columns and values of the largest coefficients, and all residuals."""
        residuals = self.rows[own].clone()
        columns = own.new_zeros((len(own), 0))
        values = self.rows.new_zeros((len(own), 0))
        for start, block in self.blocks(own):
            residuals -= block @ self.rows[start : start + block.shape[1]]
            places = torch.arange(start, start + block.shape[1], device=own.device)
            columns = torch.cat([columns, places.expand(len(own), -1)], dim=1)
            values = torch.cat([values, block], dim=1)
            order = values.abs().topk(min(n_kept, values.shape[1]), dim=1).indices
            columns, values = columns.gather(1, order), values.gather(1, order)
        return columns, values, residuals

    def proof(self, own: Tensor, residuals: Tensor) -> Tensor:
        """Return violation, duality gap and objective from the residuals, (3, B)."""
        zero = residuals.new_zeros(len(own), dtype=torch.float64)
        violation, gap = zero, zero
        objective = self.gamma / 2 * residuals.double().square().sum(dim=1)
        for start, block in self.blocks(own):
            atoms = self.rows[start : start + block.shape[1]]
            # Optimal coefficients equal gamma <x_i, residual>, but for the own one.
            miss = (self.gamma * (residuals @ atoms.T) - block) * (block != 0)
            violation = torch.maximum(violation, miss.abs().amax(dim=1).double())
            gap = gap + miss.double().square().sum(dim=1) / 2
            objective = objective + block.double().square().sum(dim=1) / 2
        return torch.stack([violation, gap, objective])


def _factors(rows: Tensor, gamma: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return two matrices of which a product of rows is a coefficient, (N, D)."""
    identity = torch.eye(rows.shape[1], dtype=torch.float64, device=rows.device)
    factor = torch.linalg.cholesky(rows.T @ rows + identity / gamma)
    # L^-1 x_i, so that x_i^T M^-1 x_j is a product of two of them.
    whitened = torch.linalg.solve_triangular(factor, rows.T, upper=False).T
    without = 1 - whitened.square().sum(dim=1, keepdim=True)  # (N, 1)
    return (whitened / without).to(dtype), whitened.to(dtype)


def _inverse(rows: Tensor, gamma: float) -> Tensor:
    """Return all coefficients from P itself, (N, N).

    For no more rows than features: products of factors would nearly cancel there.
    """
    identity = torch.eye(len(rows), dtype=torch.float64, device=rows.device)
    factor = torch.linalg.cholesky(rows @ rows.T + identity / gamma)
    inverse = torch.cholesky_inverse(factor)
    return -inverse / inverse.diagonal()[:, None]
