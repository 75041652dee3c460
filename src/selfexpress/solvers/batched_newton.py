"""Small elastic nets as one batch of matrix operations, for a GPU.

Every problem is ``c^T G c / 2 - h^T c + alpha |c|_1 + beta |c|^2 / 2``. Its dual is
smooth and piecewise quadratic; Newton's method with an exact line search finds the
piece of the optimum, and there the minimiser, after a handful of factorisations.

Shapes: B problems, W coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from selfexpress.ops.self_expression import soft_threshold

MAX_NEWTON_STEPS = 30
MAX_PROXIMAL_STEPS = 12
# A line search cuts an interval in so many parts at a time, so often: 25 bits in all.
N_CUTS = 32
N_ROUNDS = 5
# With little l2 penalty the dual has little curvature: a proximal term stands in,
# moved and made ten times weaker until it vanishes. Sizes are relative to the largest
# diagonal entry of G. The least one must outweigh the rounding of G, which may leave
# negative eigenvalues.
FIRST_CURVATURE = 1e-3
LEAST_CURVATURE = {torch.float32: 1e-5, torch.float64: 1e-7}


def solve_batch(
    gram: Tensor,
    linear: Tensor,
    coefficients: Tensor,
    *,
    alpha: Tensor,
    beta: Tensor,
    tol: Tensor,
) -> Tensor:
    """Return the minimisers, started from ``coefficients``.

    Parameters
    ----------
    gram : Tensor of shape (B, W, W)
        Symmetric and positive semi-definite; padding is zero.
    linear, coefficients : Tensor of shape (B, W)
    alpha, beta, tol : Tensor of shape (B,)
        Weights of the penalty, alpha above 0, and the largest violation of the
        optimality conditions that is accepted, in the units of ``linear``.
    """
    least = LEAST_CURVATURE[gram.dtype]
    # float64 throughout: factors of correlated rows lose three digits, and a GPU that
    # waits for memory gives them back for free.
    gram, linear, alpha, beta, tol = (
        part.double() for part in (gram, linear, alpha, beta, tol)
    )
    solution = coefficients.double()
    scale = gram.diagonal(dim1=1, dim2=2).amax(dim=1).clamp_min(1e-300)
    problem = _Problem(gram, linear, alpha, beta, tol)
    pending = torch.arange(len(gram), device=gram.device)
    for step in range(MAX_PROXIMAL_STEPS):
        part = problem.take(pending)
        floor = max(least, FIRST_CURVATURE * 0.1**step) * scale[pending]
        start = solution[pending]
        solution[pending] = _newton(part.proximal(floor, start), start)
        found = solution[pending]
        is_open = ~(part.violation(found, part.slopes(found)) <= part.tol)
        # Without a proximal term a problem is as good as Newton's method makes it.
        pending = pending[is_open & (floor > part.beta)]
        if len(pending) == 0:
            break
    return solution.to(coefficients.dtype)


@dataclass(frozen=True)
class _Problem:
    """A batch of problems."""

    gram: Tensor  # (B, W, W)
    linear: Tensor  # (B, W)
    alpha: Tensor  # (B,)
    beta: Tensor  # (B,)
    tol: Tensor  # (B,)

    def take(self, index: Tensor) -> _Problem:
        if len(index) == len(self.gram):
            return self
        return _Problem(**{name: part[index] for name, part in vars(self).items()})

    def proximal(self, floor: Tensor, centre: Tensor) -> _Problem:
        """Add a quadratic around ``centre`` that lifts ``beta`` to ``floor``."""
        extra = torch.relu(floor - self.beta)
        linear = self.linear + extra[:, None] * centre
        return replace(self, linear=linear, beta=self.beta + extra)

    def slopes(self, c: Tensor) -> Tensor:
        """Return h - G c."""
        return self.linear - (self.gram @ c[..., None])[..., 0]

    def violation(self, c: Tensor, slopes: Tensor) -> Tensor:
        """Return the largest violation of the optimality conditions."""
        alpha = self.alpha[:, None]
        at_support = (slopes - alpha * c.sign() - self.beta[:, None] * c).abs()
        return torch.where(c != 0, at_support, slopes.abs() - alpha).amax(dim=1)

    def objective(self, c: Tensor, slopes: Tensor) -> Tensor:
        smooth = -(c * (self.linear + slopes)).sum(dim=1) / 2
        l2_norm = self.beta / 2 * c.square().sum(dim=1)
        return smooth + self.alpha * c.abs().sum(dim=1) + l2_norm


def _newton(problem: _Problem, start: Tensor) -> Tensor:
    """Minimise every problem; the result is never worse than ``start``."""
    point, slopes = start, problem.slopes(start)
    best, best_value = start.clone(), problem.objective(start, slopes)
    pending = torch.arange(len(start), device=start.device)
    for _ in range(MAX_NEWTON_STEPS):
        candidate = _minimise_piece(problem, slopes)
        there = problem.slopes(candidate)
        value = problem.objective(candidate, there)
        # Written so that a failed factorisation, which gives NaN, stays open.
        is_open = ~(problem.violation(candidate, there) <= problem.tol)
        is_better = (value < best_value[pending]) | ~is_open
        improved = pending[is_better]
        best[improved], best_value[improved] = candidate[is_better], value[is_better]
        if not is_open.any():
            break
        step, change = candidate - point, there - slopes
        length = _line_search(problem, point, slopes, step, change)
        # Slopes are linear along the line: the matrix is not needed for them.
        point, slopes = point + length * step, slopes + length * change
        pending, point, slopes = pending[is_open], point[is_open], slopes[is_open]
        problem = problem.take(is_open.nonzero()[:, 0])
    return best


def _minimise_piece(problem: _Problem, slopes: Tensor) -> Tensor:
    """Minimise over the coordinates and signs that the dual point calls active."""
    is_active = slopes.abs() > problem.alpha[:, None]
    # Active coordinates first, and no more places than some problem needs.
    n_places = max(1, int(is_active.sum(dim=1).max()))
    chosen = (~is_active).to(torch.uint8).argsort(dim=1, stable=True)[:, :n_places]
    is_chosen = is_active.gather(1, chosen)
    sign = torch.where(is_chosen, slopes.gather(1, chosen).sign(), 0)
    rows = torch.arange(len(slopes), device=slopes.device)[:, None, None]
    matrix = problem.gram[rows, chosen[:, :, None], chosen[:, None, :]]
    matrix *= is_chosen[:, :, None] & is_chosen[:, None, :]
    # Places left over get a unit diagonal and a zero target: they solve to 0.
    diagonal = matrix.diagonal(dim1=1, dim2=2)
    diagonal += torch.where(is_chosen, problem.beta[:, None], 1)
    linear = torch.where(is_chosen, problem.linear.gather(1, chosen), 0)
    target = linear - problem.alpha[:, None] * sign
    factor = torch.linalg.cholesky_ex(matrix).L
    half = torch.linalg.solve_triangular(factor, target[..., None], upper=False)
    solution = torch.linalg.solve_triangular(factor.mT, half, upper=True)[..., 0]
    return torch.zeros_like(slopes).scatter(1, chosen, solution)


def _line_search(
    problem: _Problem, point: Tensor, slopes: Tensor, step: Tensor, change: Tensor
) -> Tensor:
    """Return how far to go to minimise the dual objective, which is convex, (B, 1).

    A dual point is kept as coefficients c with residual x - X c; its objective is
    ``c^T G c / 2 + |soft(h - G c, alpha)|^2 / (2 beta)`` up to a constant. ``change``
    is that of the slopes by a whole step, -G step.
    """
    start = (point * change).sum(dim=1, keepdim=True)
    curve = (step * change).sum(dim=1, keepdim=True)

    def derivative(lengths: Tensor) -> Tensor:  # (B, any) to (B, any)
        positions = slopes[:, None] + lengths[..., None] * change[:, None]
        pull = soft_threshold(positions, problem.alpha[:, None, None])
        pulled = (pull @ change[..., None])[..., 0] / problem.beta[:, None]
        return pulled - start - lengths * curve

    low = torch.zeros_like(start)
    is_full = derivative(low + 1) <= 0
    parts = torch.arange(1, N_CUTS, device=low.device, dtype=low.dtype)
    size = 1.0
    for _ in range(N_ROUNDS):
        size /= N_CUTS
        is_before = derivative(low + size * parts) <= 0
        low = low + size * is_before.sum(dim=1, keepdim=True)
    return torch.where(is_full, torch.ones_like(low), low)
