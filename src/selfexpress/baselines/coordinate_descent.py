"""Small elastic nets by compiled coordinate descent, one row of a batch per thread.

Every problem is ``c^T G c / 2 - h^T c + alpha |c|_1 + beta |c|^2 / 2``.

Shapes: B problems, W coordinates (working-set size, padded), S non-zero coordinates.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from torch import Tensor

from selfexpress.baselines.compiled import for_row_ranges

MAX_SWEEPS = 2000
# Newton steps on the support, after so many sweeps, while coefficients change sign.
SWEEPS_PER_NEWTON = 3
NEWTON_STEPS = 3


def descend(
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

    Cyclic coordinate descent finds the support; a Newton step on the support, cut
    where the first coefficient changes its sign, then ends the slow convergence that
    correlated rows would cause. Both steps lower the objective, so that it always
    converges; once support and signs are right one Newton step is exact.

    Parameters
    ----------
    gram : Tensor of shape (B, W, W) or (1, W, W)
        One matrix may serve all problems.
    linear, coefficients : Tensor of shape (B, W)
    sizes : Tensor of shape (B,)
        Coordinates in use; the rest of each row is padding and stays 0.
    alpha, beta, tol : Tensor of shape (B,)
        Weights of the penalty and the largest violation of the optimality conditions
        that is accepted, in the units of ``linear``.
    """
    grams = gram.contiguous().numpy()
    parts = [part.double().contiguous() for part in (linear, alpha, beta, tol)]
    inputs = [sizes.numpy(), *(part.numpy() for part in parts)]
    solution = coefficients.double().contiguous().numpy().copy()

    def kernel(rows: slice) -> None:
        own_grams = grams[rows] if len(grams) > 1 else grams
        own_inputs = (part[rows] for part in inputs)
        _descend_rows(own_grams, solution[rows], *own_inputs)

    for_row_ranges(kernel, len(solution))
    return torch.from_numpy(solution).to(coefficients.dtype)


@njit(nogil=True, cache=True)
def _descend_rows(grams, solution, sizes, linear, alpha, beta, tol):  # type: ignore[no-untyped-def]
    for row in range(len(sizes)):
        size = sizes[row]
        _descend_row(
            grams[row % len(grams), :size, :size],
            linear[row, :size],
            solution[row, :size],
            alpha[row],
            beta[row],
            tol[row],
        )


@njit(cache=True)
def _descend_row(gram, linear, solution, alpha, beta, tol):  # type: ignore[no-untyped-def]
    """Solve one problem in place."""
    gradient = linear.copy()  # of the smooth part without beta, negated: h - G c
    for k in range(len(solution)):
        if solution[k] != 0.0:
            _add_scaled(gradient, -solution[k], gram[k])
    for sweep in range(MAX_SWEEPS):
        if _sweep(gram, gradient, solution, alpha, beta) <= tol:
            return
        if sweep % SWEEPS_PER_NEWTON == SWEEPS_PER_NEWTON - 1:
            for _ in range(NEWTON_STEPS):
                if _newton_step(gram, gradient, solution, alpha, beta):
                    break


@njit(cache=True)
def _sweep(gram, gradient, solution, alpha, beta):  # type: ignore[no-untyped-def]
    """Minimise over each coordinate in turn; return the largest violation met."""
    worst = 0.0
    for k in range(len(solution)):
        old = solution[k]
        slope = gradient[k] - beta * old
        if old == 0.0:
            violation = abs(slope) - alpha
        else:
            violation = abs(slope - alpha * np.sign(old))
        if violation <= 0.0:
            continue
        worst = max(worst, violation)
        curvature = gram[k, k] + beta
        if curvature <= 0.0:
            continue
        pull = gradient[k] + gram[k, k] * old
        new = np.sign(pull) * max(abs(pull) - alpha, 0.0) / curvature
        if new != old:
            solution[k] = new
            _add_scaled(gradient, old - new, gram[k])
    return worst


@njit(cache=True)
def _newton_step(gram, gradient, solution, alpha, beta):  # type: ignore[no-untyped-def]
    """Move towards the minimiser over the support, up to the first sign change.

    Returns whether there was none, or no step to take.
    """
    support = np.flatnonzero(solution)
    size = len(support)
    if size == 0:
        return True
    factor = np.empty((size, size))
    step = np.empty(size)
    for a in range(size):
        i = support[a]
        step[a] = gradient[i] - beta * solution[i] - alpha * np.sign(solution[i])
        for b in range(a + 1):
            factor[a, b] = gram[i, support[b]]
        # The ridge keeps duplicates solvable; the step still goes downhill.
        factor[a, a] += beta + 1e-12 * gram[i, i]
    if not _solve_spd(factor, step):
        return True
    length = 1.0
    first = -1
    for a in range(size):
        old = solution[support[a]]
        if old * (old + length * step[a]) <= 0.0:
            length = -old / step[a]
            first = a
    for a in range(size):
        i = support[a]
        change = -solution[i] if a == first else length * step[a]
        solution[i] += change
        _add_scaled(gradient, -change, gram[i])
    return first < 0


@njit(cache=True, fastmath={"reassoc", "contract"})
def _solve_spd(matrix, target):  # type: ignore[no-untyped-def]
    """Solve in place by Cholesky from the lower triangle; False if not definite."""
    size = len(target)
    for a in range(size):
        for b in range(a + 1):
            total = matrix[a, b]
            for k in range(b):
                total -= matrix[a, k] * matrix[b, k]
            if a == b:
                if total <= 0.0:
                    return False
                matrix[a, a] = np.sqrt(total)
            else:
                matrix[a, b] = total / matrix[b, b]
    for a in range(size):
        for k in range(a):
            target[a] -= matrix[a, k] * target[k]
        target[a] /= matrix[a, a]
    for a in range(size - 1, -1, -1):
        target[a] /= matrix[a, a]
        for k in range(a):
            target[k] -= matrix[a, k] * target[a]
    return True


@njit(cache=True)
def _add_scaled(total, scale, row):  # type: ignore[no-untyped-def]
    for k in range(len(total)):
        total[k] += scale * row[k]
