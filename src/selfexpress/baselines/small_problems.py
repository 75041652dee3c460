"""Many small elastic nets, by the solver that suits the device.

Every problem is ``c^T G c / 2 - h^T c + alpha |c|_1 + beta |c|^2 / 2``.

Shapes: B problems, W coordinates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from selfexpress.baselines.batched_newton import solve_batch
from selfexpress.baselines.compiled import has_numba


def solve_small_problems(
    gram: Tensor,
    linear: Tensor,
    coefficients: Tensor,
    *,
    sizes: Tensor,
    alpha: Tensor,
    beta: Tensor,
    tol: Tensor,
) -> Tensor:
    """Return the minimisers, started from ``coefficients``.

    Parameters
    ----------
    gram : Tensor of shape (B, W, W) or (1, W, W)
        One matrix may serve all problems.
    linear, coefficients : Tensor of shape (B, W)
    sizes : Tensor of shape (B,), int64
        Coordinates in use, the first ones; the others stay 0.
    alpha, beta, tol : Tensor of shape (B,)
        Weights of the penalty, alpha above 0, and the largest violation of the
        optimality conditions that is accepted, in the units of ``linear``.
    """
    if gram.device.type == "cpu" and has_numba():
        from selfexpress.baselines.coordinate_descent import descend

        return descend(
            gram, linear, coefficients, sizes=sizes, alpha=alpha, beta=beta, tol=tol
        )
    places = torch.arange(linear.shape[1], device=linear.device)
    is_used = places < sizes[:, None]  # (B, W)
    return solve_batch(
        gram * (is_used[:, :, None] & is_used[:, None, :]),
        torch.where(is_used, linear, 0),
        coefficients,
        alpha=alpha,
        beta=beta,
        tol=tol,
    )
