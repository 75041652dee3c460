"""Many small elastic nets, by the solver that suits the device.

Every problem is ``c^T G c / 2 - h^T c + alpha |c|_1 + beta |c|^2 / 2``.

Shapes: B problems, W coordinates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from selfexpress.solvers.batched_newton import solve_batch
from selfexpress.solvers.compiled import has_numba

# Of a matrix that serves all problems, so many coordinates of each are tried first.
_FIRST_WIDTH = 64


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
        from selfexpress.solvers.coordinate_descent import descend

        return descend(
            gram, linear, coefficients, sizes=sizes, alpha=alpha, beta=beta, tol=tol
        )
    places = torch.arange(linear.shape[1], device=linear.device)
    is_used = places < sizes[:, None]  # (B, W)
    penalty = {"alpha": alpha, "beta": beta, "tol": tol}
    linear = torch.where(is_used, linear, 0)
    if len(gram) == 1:
        return _solve_shared(gram[0], linear, coefficients, is_used, penalty)
    return solve_batch(_masked(gram, is_used), linear, coefficients, **penalty)


def _solve_shared(
    gram: Tensor,
    linear: Tensor,
    coefficients: Tensor,
    is_used: Tensor,
    penalty: dict[str, Tensor],
) -> Tensor:
    """Solve for the coordinates that matter most, then for more where it is not enough.

    Few coefficients are not zero, and factors of a few coordinates cost next to
    nothing beside those of all.
    """
    solution = coefficients.clone()
    slopes = torch.where(is_used, linear - solution @ gram, 0)
    pending = torch.arange(len(linear), device=linear.device)
    width = min(_FIRST_WIDTH, len(gram))
    while len(pending):
        own, used = solution[pending], is_used[pending]
        rank = torch.where(own != 0, torch.inf, slopes.abs())
        chosen = rank.topk(width).indices  # (B, width)
        part = _masked(
            gram[chosen[:, :, None], chosen[:, None, :]], used.gather(1, chosen)
        )
        start = own.gather(1, chosen)
        # What the coordinates left out explain already is no longer to be explained.
        target = slopes.gather(1, chosen) + (part @ start[..., None])[..., 0]
        rest = {name: values[pending] for name, values in penalty.items()}
        found = solve_batch(part, target, start, **rest)
        solution[pending] = own.scatter(1, chosen, found)
        if width == len(gram):
            break
        slopes = torch.where(used, linear[pending] - solution[pending] @ gram, 0)
        pull = torch.where(own != 0, torch.inf, slopes.abs())
        excess = pull.scatter(1, chosen, 0.0).amax(dim=1) - rest["alpha"]
        is_open = excess > rest["tol"]
        pending, slopes = pending[is_open], slopes[is_open]
        width = min(2 * width, len(gram))
    return solution


def _masked(gram: Tensor, is_used: Tensor) -> Tensor:
    return gram * (is_used[:, :, None] & is_used[:, None, :])
