"""How far coefficients are from optimal: violation, duality gap, objective.

With g_i = gamma <x_i, residual> the optimality (KKT) conditions are
``g_i = l1_ratio sign(c_i) + (1 - l1_ratio) c_i`` where c_i is not 0, and
``|g_i| <= l1_ratio`` where it is. The duality gap at the dual point
gamma * residual is a sum of terms that are never negative (Fenchel and Young), so that
it is computed without cancellation. For l1_ratio = 1 the dual point is shrunk until it
is feasible.

Shapes: B rows, W coordinates that may be non-zero.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from selfexpress.errors import ConvergenceWarning
from selfexpress.solvers.correlation_scan import Scan, scan_correlations


@dataclass(frozen=True)
class Certificate:
    """Proof of quality of B rows of coefficients, in float64.

    Attributes
    ----------
    violation, gap, objective : Tensor of shape (B,)
    """

    violation: Tensor
    gap: Tensor
    objective: Tensor

    def take(self, which: Tensor) -> Certificate:
        """Return the certificate of some rows."""
        return Certificate(*(getattr(self, name)[which] for name in PROOF))

    def is_open(self, tol: float) -> Tensor:
        """Tell which rows violate the conditions, have too wide a gap, or diverged."""
        # Not "greater": NaN is neither greater nor at most.
        return ~((self.violation <= tol) & (self.gap <= tol * self.objective))

    def warn_if_open(self, tol: float, after: str) -> None:
        """Warn with the number of rows and the worst value."""
        is_open = self.is_open(tol)
        if not is_open.any():
            return
        warnings.warn(
            f"{int(is_open.sum())} of {len(is_open)} rows stopped {after} with a KKT "
            f"violation up to {float(self.violation[is_open].max()):.2g} and a duality "
            f"gap up to {float(self.gap[is_open].max()):.2g}, above tol={tol:g}. Raise "
            "max_iter or tol, lower gamma, or solve in double precision (EnSC: "
            "precision='float64').",
            ConvergenceWarning,
            stacklevel=4,
        )


PROOF = ("violation", "gap", "objective")


def certificate(
    coefficients: Tensor,
    correlations: Tensor,
    *,
    residual_squares: Tensor,
    outside: Scan,
    gamma: Tensor,
    l1_ratio: float,
) -> Certificate:
    """Judge coefficients from the correlations of their residuals.

    Parameters
    ----------
    coefficients, correlations : Tensor of shape (B, W)
        c_i and <x_i, residual>; padding has 0 in both.
    residual_squares : Tensor of shape (B,)
    outside : Scan
        Of all other rows, whose coefficients are 0, above ``l1_ratio / gamma``.
    gamma : Tensor of shape (B,)
    l1_ratio : float
        Above 0.
    """
    c, gamma = coefficients.double(), gamma.double()
    slopes = gamma[:, None] * correlations.double()  # (B, W)
    largest = gamma * outside.largest.double()
    ridge = 1 - l1_ratio
    at_support = (slopes - l1_ratio * c.sign() - ridge * c).abs()
    inside = torch.where(c != 0, at_support, slopes.abs() - l1_ratio)
    violation = torch.maximum(inside.amax(dim=1), largest - l1_ratio).clamp_min(0)
    objective = (
        gamma / 2 * residual_squares.double()
        + l1_ratio * c.abs().sum(dim=1)
        + ridge / 2 * c.square().sum(dim=1)
    )
    if ridge > 0:
        excess = gamma.square() * outside.excess.double()
        gap = _smooth_gap(c, slopes, l1_ratio) + excess / (2 * ridge)
    else:
        peak = torch.maximum(slopes.abs().amax(dim=1), largest)
        shrink = 1 / peak.clamp_min(1)
        gap = gamma / 2 * (1 - shrink).square() * residual_squares.double()
        gap += (c.abs() - shrink[:, None] * c * slopes).sum(dim=1)
    return Certificate(violation, gap, objective)


def _smooth_gap(c: Tensor, slopes: Tensor, l1_ratio: float) -> Tensor:
    """Sum the gap's terms: a square where signs agree, else the bare inequality."""
    ridge = 1 - l1_ratio
    pull = slopes.sign() * torch.relu(slopes.abs() - l1_ratio)
    agreeing = (c - pull / ridge).square() * (ridge / 2)
    disagreeing = (
        l1_ratio * c.abs()
        + ridge / 2 * c.square()
        + pull.square() / (2 * ridge)
        - c * slopes
    )
    return torch.where((c == 0) | (c * pull > 0), agreeing, disagreeing).sum(dim=1)


def certify(
    rows: Tensor,
    coefficients: sparse.csr_array,
    *,
    gamma: float | np.ndarray,
    l1_ratio: float,
    batch_size: int = 512,
    block_size: int = 8192,
) -> Certificate:
    """Judge given coefficients of ``rows`` by ``rows`` in float64, from nothing else.

    Parameters
    ----------
    rows : Tensor of shape (N, D)
    coefficients : csr_array of shape (N, N)
        With a zero diagonal.
    gamma : float or ndarray of shape (N,)
        Absolute, of every row.
    l1_ratio : float
        Above 0.
    batch_size, block_size : int
        Memory is ``batch_size * block_size`` numbers beside ``rows`` in float64.
    """
    rows = rows.double()
    all_gamma = torch.as_tensor(np.broadcast_to(gamma, len(rows)).astype(float))
    parts = []
    for start in range(0, len(rows), batch_size):
        batch = slice(start, min(start + batch_size, len(rows)))
        own = torch.arange(batch.start, batch.stop, device=rows.device)
        index, values = (part.to(rows.device) for part in _padded(coefficients[batch]))
        members = rows[index.clamp_min(0)]  # (B, W, D)
        residuals = rows[batch] - (values[:, None] @ members)[:, 0]
        correlations = (members @ residuals[..., None])[..., 0]
        batch_gamma = all_gamma[batch].to(rows.device)
        outside = scan_correlations(
            residuals,
            rows,
            excluded=torch.cat([own[:, None], index], dim=1),
            threshold=l1_ratio / batch_gamma,
            n_candidates=1,
            block_size=block_size,
        )
        part = certificate(
            values,
            torch.where(index >= 0, correlations, 0),
            residual_squares=residuals.square().sum(dim=1),
            outside=outside,
            gamma=batch_gamma,
            l1_ratio=l1_ratio,
        )
        parts.append(part)
    return Certificate(
        *(torch.cat([getattr(part, name) for part in parts]) for name in PROOF)
    )


def _padded(coefficients: sparse.csr_array) -> tuple[Tensor, Tensor]:
    """Return columns and values of each row, padded with -1 and 0 to equal length."""
    lengths = np.diff(coefficients.indptr)
    is_used = np.arange(max(1, lengths.max())) < lengths[:, None]  # (B, W)
    index = np.full(is_used.shape, -1, dtype=np.int64)
    values = np.zeros(is_used.shape)
    index[is_used] = coefficients.indices
    values[is_used] = coefficients.data
    return torch.from_numpy(index), torch.from_numpy(values)
