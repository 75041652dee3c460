"""Self-expression by orthogonal matching pursuit, on batches of rows.

Each row picks the row that correlates most with what is left of it, projects on all
rows picked so far, and repeats.

Shapes: N rows, D features, B rows of a batch, S rows picked at most.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from scipy import sparse
from torch import Tensor

from selfexpress.config import require_count, require_positive
from selfexpress.ops.precision import float32_products
from selfexpress.solvers.batches import block_size_or_default, solve_in_batches
from selfexpress.solvers.collected_rows import CollectedRows
from selfexpress.solvers.correlation_scan import scan_correlations
from selfexpress.solvers.problem import Progress


@dataclass(frozen=True)
class PursuitConfig:
    """When a pursuit ends.

    Attributes
    ----------
    n_nonzero : int
        Most rows that may express a row.
    tol : float
        Share of a row's squared norm that is a small enough rest to stop earlier.
    batch_size, block_size : int, optional
        Rows pursued together and rows compared with them at a time; chosen by the
        device unless given.
    """

    n_nonzero: int = 10
    tol: float = 1e-6
    batch_size: int | None = None
    block_size: int | None = None

    def __post_init__(self) -> None:
        require_count("n_nonzero", self.n_nonzero, advice="Use for example 10.")
        require_positive("tol", self.tol, advice="Use for example 1e-6.")
        for name in ("batch_size", "block_size"):
            if getattr(self, name) is not None:
                require_count(name, getattr(self, name), advice="Use None to choose.")


def pursuit_coefficients(
    rows: Tensor, config: PursuitConfig, *, progress: Progress | None = None
) -> sparse.csr_array:
    """Express every row by at most ``config.n_nonzero`` others.

    A pursuit ends early when its rest is within ``config.tol``, when no other row
    correlates with it, or when the row picked depends linearly on those before it.
    Rows of zeros get no coefficients.

    Parameters
    ----------
    rows : Tensor of shape (N, D), float32 or float64
        On the device that is to do the work.
    config : PursuitConfig
    progress : callable, optional
        Called with the rows finished and the rows in all after every batch.

    Returns
    -------
    csr_array of shape (N, N)
        Row j expresses row j.
    """
    coefficients = CollectedRows((len(rows), len(rows)))

    def solve(batch: slice) -> None:
        own = torch.arange(batch.start, batch.stop, device=rows.device)
        picked, values = _pursue(rows, own, config)
        coefficients.add(own, picked, values)

    with float32_products("highest"):
        solve_in_batches(
            solve,
            len(rows),
            batch_size=config.batch_size,
            device=rows.device,
            progress=progress,
        )
    return coefficients.matrix(rows.dtype)


@dataclass
class _Pursuit:
    """A batch of pursuits; row s of ``triangle`` is the s-th atom in the basis."""

    own: Tensor  # (B,)
    residuals: Tensor  # (B, D)
    picked: Tensor  # (B, S), -1 pads
    basis: Tensor  # (B, S, D), orthonormal rows
    triangle: Tensor  # (B, S, S), lower; the identity where nothing was picked
    projections: Tensor  # (B, S), of the target on the basis


def _pursue(rows: Tensor, own: Tensor, config: PursuitConfig) -> tuple[Tensor, Tensor]:
    """Return the rows picked by a batch and their coefficients, both (B, S)."""
    n_steps = min(config.n_nonzero, len(rows) - 1)
    identity = torch.eye(n_steps, dtype=rows.dtype, device=rows.device)
    pursuit = _Pursuit(
        own=own,
        residuals=rows[own],
        picked=torch.full((len(own), n_steps), -1, device=rows.device),
        basis=rows.new_zeros((len(own), n_steps, rows.shape[1])),
        triangle=identity.repeat(len(own), 1, 1),
        projections=rows.new_zeros((len(own), n_steps)),
    )
    which = torch.arange(len(own), device=rows.device)
    enough = config.tol * rows[own].square().sum(dim=1)  # (B,)
    for step in range(n_steps):
        squares = pursuit.residuals[which].square().sum(dim=1)
        which = which[squares > enough[which]]
        if len(which) == 0:
            break
        which = _pick(pursuit, which, step, rows, config)
    # The atoms are triangle @ basis, so that c @ triangle must be the projections.
    values = torch.linalg.solve_triangular(
        pursuit.triangle, pursuit.projections[:, None], upper=False, left=False
    )
    return pursuit.picked, values[:, 0]


def _pick(
    pursuit: _Pursuit, which: Tensor, step: int, rows: Tensor, config: PursuitConfig
) -> Tensor:
    """Let the pursuits ``which`` pick one more row; return those that could."""
    scan = scan_correlations(
        pursuit.residuals[which],
        rows,
        excluded=torch.cat([pursuit.own[:, None], pursuit.picked], dim=1)[which],
        threshold=rows.new_zeros(len(which)),
        n_candidates=1,
        block_size=block_size_or_default(config.block_size, rows.device),
    )
    choice = scan.candidates[:, 0]
    which, choice = which[choice >= 0], choice[choice >= 0]
    atoms, basis = rows[choice], pursuit.basis[which, :step]
    inside, rest = _split(atoms, basis)
    lengths = rest.norm(dim=1)
    # What is left of a dependent atom is rounding; its square would be below epsilon.
    is_new = lengths > torch.finfo(rows.dtype).eps ** 0.5 * atoms.norm(dim=1)
    which, lengths = which[is_new], lengths[is_new]
    direction = rest[is_new] / lengths[:, None]
    projection = (direction * rows[pursuit.own[which]]).sum(dim=1)
    pursuit.picked[which, step] = choice[is_new]
    pursuit.basis[which, step] = direction
    pursuit.triangle[which, step, :step] = inside[is_new]
    pursuit.triangle[which, step, step] = lengths
    pursuit.projections[which, step] = projection
    pursuit.residuals[which] -= projection[:, None] * direction
    return which


def _split(atoms: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
    """Return the parts of atoms in the span of a basis, as coordinates, and beside it.

    Projecting twice makes the rest orthogonal to working precision.
    """
    inside = (basis @ atoms[..., None])[..., 0]  # (B, step)
    rest = atoms - (inside[:, None] @ basis)[:, 0]
    again = (basis @ rest[..., None])[..., 0]
    return inside + again, rest - (again[:, None] @ basis)[:, 0]
