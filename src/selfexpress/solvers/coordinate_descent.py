"""Small elastic nets by compiled coordinate descent, one row of a batch per thread.

Every problem is ``c^T G c / 2 - h^T c + alpha |c|_1 + beta |c|^2 / 2``.

Shapes: B problems, W coordinates (working-set size, padded), S non-zero coordinates.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from torch import Tensor

from selfexpress.solvers.compiled import for_row_ranges

MAX_SWEEPS = 2000
# Newton steps on the support are due after so many sweeps without a change of sign, or
# so many in all, and are repeated while they make coefficients zero.
STABLE_SWEEPS = 4
MOST_SWEEPS = 20
NEWTON_STEPS = 10


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
    n_stable = n_since = 0
    for _ in range(MAX_SWEEPS):
        worst, n_flips = _sweep(gram, gradient, solution, alpha, beta)
        if worst <= tol:
            return
        n_stable = n_stable + 1 if n_flips == 0 else 0
        n_since += 1
        if n_stable == STABLE_SWEEPS or n_since == MOST_SWEEPS:
            n_stable = n_since = 0
            for _ in range(NEWTON_STEPS):
                if _newton_step(gram, gradient, solution, alpha, beta):
                    break


@njit(cache=True)
def _sweep(gram, gradient, solution, alpha, beta):  # type: ignore[no-untyped-def]
    """Minimise over each coordinate in turn.

    Returns the largest violation met and how many coefficients changed their sign.
    """
    worst = 0.0
    n_flips = 0
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
            n_flips += np.sign(new) != np.sign(old)
            solution[k] = new
            _add_scaled(gradient, old - new, gram[k])
    return worst, n_flips


@njit(cache=True)
def _newton_step(gram, gradient, solution, alpha, beta):  # type: ignore[no-untyped-def]
    """Move to the minimiser over the support, as far as that keeps all signs.

    Returns whether it went all the way, or found no way to go.
    """
    support = np.flatnonzero(solution)
    slope = np.empty(len(support))
    for a, i in enumerate(support):
        slope[a] = gradient[i] - beta * solution[i] - alpha * np.sign(solution[i])
    step = slope.copy()
    if len(support) == 0 or not _solve_spd(_factor(gram, support, beta), step):
        return True
    length = 1.0
    for a, i in enumerate(support):
        if solution[i] * (solution[i] + length * step[a]) <= 0.0:
            length = -solution[i] / step[a]
    if length == 1.0:
        _move(gram, gradient, solution, support, step)
        return True
    # All that would change sign stop at zero, if that is downhill; else the first.
    clipped = step.copy()
    for a, i in enumerate(support):
        if solution[i] * (solution[i] + step[a]) <= 0.0:
            clipped[a] = -solution[i]
        step[a] = length * step[a]
        if abs(solution[i] + step[a]) <= 1e-14 * abs(solution[i]):
            step[a] = -solution[i]
    if _is_downhill(gram, support, slope, clipped, beta):
        step = clipped
    _move(gram, gradient, solution, support, step)
    return False


@njit(cache=True)
def _factor(gram, support, beta):  # type: ignore[no-untyped-def]
    """Return the lower triangle of the support's second derivatives."""
    matrix = np.empty((len(support), len(support)))
    for a, i in enumerate(support):
        for b in range(a + 1):
            matrix[a, b] = gram[i, support[b]]
        # The ridge keeps duplicates solvable; the step still goes downhill.
        matrix[a, a] += beta + 1e-12 * gram[i, i]
    return matrix


@njit(cache=True)
def _is_downhill(gram, support, slope, step, beta):  # type: ignore[no-untyped-def]
    """Tell whether a step that changes no sign lowers the objective."""
    change = 0.0
    for a, i in enumerate(support):
        curve = beta * step[a]
        for b, j in enumerate(support):
            curve += gram[i, j] * step[b]
        change += step[a] * (0.5 * curve - slope[a])
    return change < 0.0


@njit(cache=True)
def _move(gram, gradient, solution, support, step):  # type: ignore[no-untyped-def]
    for a, i in enumerate(support):
        solution[i] += step[a]
        _add_scaled(gradient, -step[a], gram[i])


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
