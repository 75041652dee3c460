"""The active-set method: rounds of solving on working sets and letting rows in.

Shapes: B rows of a batch, N dictionary rows, D features, W places of a working set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from selfexpress.solvers.batches import block_size_or_default
from selfexpress.solvers.certificate import Certificate, certificate
from selfexpress.solvers.compiled import has_numba
from selfexpress.solvers.correlation_scan import Scan, scan_correlations
from selfexpress.solvers.problem import ElasticNetConfig
from selfexpress.solvers.small_problems import solve_small_problems

# Rows in a working set at the start, and rows that may join it in a round.
N_FIRST = 64
N_JOINING = 64
# Bytes of the working sets' rows held at a time.
GATHER_BYTES = {"cpu": 2**21, "cuda": 2**30}


@dataclass(frozen=True)
class WorkingRows:
    """Rows of a batch and how far each has come."""

    place: Tensor  # (B,) where the result goes
    targets: Tensor  # (B, D)
    own: Tensor  # (B,)
    gamma: Tensor  # (B,)
    alpha: Tensor  # (B,) l1_ratio / gamma
    beta: Tensor  # (B,) (1 - l1_ratio) / gamma
    inner_tol: Tensor  # (B,) of the small problems
    residuals: Tensor  # (B, D)
    members: Tensor  # (B, W) working sets, -1 pads at the end
    coefficients: Tensor  # (B, W)

    def take(self, which: Tensor) -> WorkingRows:
        """Return some of the rows."""
        parts = {name: part[which] for name, part in vars(self).items()}
        return WorkingRows(**parts)

    def narrowed(self, width: int) -> WorkingRows:
        """Return the rows with the first places of their working sets only."""
        members, coefficients = self.members[:, :width], self.coefficients[:, :width]
        return replace(self, members=members, coefficients=coefficients)


# Called with finished rows, their certificate and the rounds they took.
Finish = Callable[[WorkingRows, Certificate, int], None]


def solve_rows(
    targets: Tensor,
    own: Tensor,
    dictionary: Tensor,
    config: ElasticNetConfig,
    finish: Finish,
    *,
    candidates: Tensor | None = None,
) -> None:
    """Run rounds on one batch until every row is finished or the rounds are over.

    Parameters
    ----------
    targets : Tensor of shape (B, D)
    own : Tensor of shape (B,), int64
        Where each target stands in the dictionary, to be left out; -1 if nowhere.
    dictionary : Tensor of shape (N, D)
    config : ElasticNetConfig
    finish : callable
        Receives every row once, ``place`` being its position among the targets.
    candidates : Tensor of shape (B, A), int64, optional
        Working sets to start with, instead of the rows most like each target.
    """
    rows = _first_rows(targets, own, dictionary, config, candidates)
    for n_iter in range(1, config.max_iter + 1):
        rows, correlations = _solve_working_sets(rows, dictionary)
        outside = Scan.of_none(rows.alpha)
        if not config.is_local:
            outside = scan_correlations(
                rows.residuals,
                dictionary,
                excluded=torch.cat([rows.own[:, None], rows.members], dim=1),
                threshold=rows.alpha,
                n_candidates=N_JOINING,
                block_size=block_size_or_default(config.block_size, targets.device),
            )
        proof = certificate(
            rows.coefficients,
            correlations,
            residual_squares=rows.residuals.square().sum(dim=1),
            outside=outside,
            gamma=rows.gamma,
            l1_ratio=config.l1_ratio,
        )
        # A little below tol: float32 must not be what decides.
        is_open = proof.is_open(0.99 * config.tol)
        is_last = config.is_local or n_iter == config.max_iter
        if is_last or not is_open.any():
            return finish(rows, proof, n_iter)
        done, still = (~is_open).nonzero()[:, 0], is_open.nonzero()[:, 0]
        finish(rows.take(done), proof.take(done), n_iter)
        rows = _let_join(rows.take(still), outside.candidates[still])
    raise AssertionError("max_iter is at least 1")


def solve_candidates(
    targets: Tensor, dictionary: Tensor, config: ElasticNetConfig, candidates: Tensor
) -> Tensor:
    """Return the coefficients of targets on their candidates, and nothing else, (B, A).

    Parameters
    ----------
    targets : Tensor of shape (B, D)
    dictionary : Tensor of shape (N, D)
    config : ElasticNetConfig
    candidates : Tensor of shape (B, A), int64
        Of the dictionary; -1 anywhere stands for none.
    """
    nobody = torch.full((len(targets),), -1, device=targets.device)
    rows = _first_rows(targets, nobody, dictionary, config, candidates)
    order = _padding_last(candidates)[1]
    n_bytes = candidates.shape[1] * dictionary.shape[1] * dictionary.element_size()
    n_rows = max(1, GATHER_BYTES[dictionary.device.type] // n_bytes)
    found = []
    for first in range(0, len(targets), n_rows):
        part = rows.take(torch.arange(first, min(first + n_rows, len(targets))))
        atoms = dictionary[part.members.clamp_min(0)]  # (B, A, D)
        found.append(
            solve_small_problems(
                atoms @ atoms.mT,
                (atoms @ part.targets[:, :, None])[..., 0],
                part.coefficients,
                sizes=(part.members >= 0).sum(dim=1),
                alpha=part.alpha,
                beta=part.beta,
                tol=part.inner_tol,
            )
        )
    solved = torch.cat(found)
    return torch.zeros_like(solved).scatter_(1, order, solved)


def _first_rows(
    targets: Tensor,
    own: Tensor,
    dictionary: Tensor,
    config: ElasticNetConfig,
    candidates: Tensor | None,
) -> WorkingRows:
    """Start with the given candidates, or the rows that correlate most."""
    if candidates is None:
        scan = scan_correlations(
            targets,
            dictionary,
            excluded=own[:, None],
            threshold=targets.new_zeros(len(targets)),
            n_candidates=N_FIRST,
            block_size=block_size_or_default(config.block_size, targets.device),
        )
        candidates, largest = scan.candidates, scan.largest
    else:
        largest = targets.new_ones(len(targets))
        if config.gamma_scale == "relative":
            atoms = dictionary[candidates.clamp_min(0)]  # (B, A, D)
            found = (atoms @ targets[:, :, None])[..., 0].abs()
            largest = found.masked_fill(candidates < 0, 0).amax(dim=1)
    gamma = torch.full_like(largest, config.gamma)
    if config.gamma_scale == "relative":
        # A row that correlates with none has the solution 0 for every gamma.
        is_alone = largest == 0
        gamma *= config.l1_ratio / torch.where(is_alone, 1, largest)
    members = _padding_last(candidates)[0]
    return WorkingRows(
        place=torch.arange(len(targets), device=targets.device),
        targets=targets,
        own=own,
        gamma=gamma,
        alpha=config.l1_ratio / gamma,
        beta=(1 - config.l1_ratio) / gamma,
        inner_tol=0.3 * config.tol / gamma,
        residuals=targets,
        members=members,
        coefficients=torch.zeros_like(members, dtype=targets.dtype),
    )


def _let_join(rows: WorkingRows, candidates: Tensor) -> WorkingRows:
    """Drop zero coefficients from the working sets and let the violators in."""
    # Where nobody joins, the small problem itself was not solved well enough.
    is_stuck = (candidates < 0).all(dim=1)
    members = torch.where(rows.coefficients != 0, rows.members, -1)
    members, order = _padding_last(torch.cat([members, candidates], dim=1))
    coefficients = torch.cat(
        [rows.coefficients, torch.zeros_like(candidates, dtype=rows.targets.dtype)],
        dim=1,
    )
    width = max(1, int((members >= 0).sum(dim=1).max()))
    return replace(
        rows,
        members=members[:, :width],
        coefficients=coefficients.gather(1, order)[:, :width],
        inner_tol=torch.where(is_stuck, 0.1 * rows.inner_tol, rows.inner_tol),
    )


def _padding_last(members: Tensor) -> tuple[Tensor, Tensor]:
    """Move -1 to the end of every row; also return the order that does it."""
    order = (members < 0).to(torch.uint8).argsort(dim=1, stable=True)
    return members.gather(1, order), order


def _solve_working_sets(
    rows: WorkingRows, dictionary: Tensor
) -> tuple[WorkingRows, Tensor]:
    """Solve on the working sets; also return their correlations with the residuals."""
    n_bytes = rows.members.shape[1] * dictionary.shape[1] * dictionary.element_size()
    n_rows = max(1, GATHER_BYTES[dictionary.device.type] // n_bytes)
    coefficients = torch.zeros_like(rows.coefficients)
    correlations = torch.zeros_like(rows.coefficients)
    residuals = torch.empty_like(rows.residuals)
    # Rows of like size go together, so that little of what they hold is padding.
    sizes, order = (rows.members >= 0).sum(dim=1).sort()
    for some, widths in zip(order.split(n_rows), sizes.split(n_rows), strict=True):
        width = max(1, int(widths[-1]))
        part = _solve_gathered(rows.take(some).narrowed(width), dictionary)
        coefficients[some, :width], residuals[some], correlations[some, :width] = part
    solution = replace(rows, coefficients=coefficients, residuals=residuals)
    return solution, correlations


def _solve_gathered(
    rows: WorkingRows, dictionary: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return coefficients, residuals and correlations of a few working sets."""
    is_member = rows.members >= 0
    atoms = dictionary.index_select(0, rows.members.clamp_min(0).flatten())
    atoms = atoms.view(*rows.members.shape, -1)  # (B, W, D)
    gram = atoms @ atoms.mT  # (B, W, W)
    # The linear term is taken at the last solution, so that rounding of the Gram
    # matrix only acts on what changes in this round.
    linear = (rows.residuals[:, None] @ atoms.mT)[:, 0]
    linear += (rows.coefficients[:, None] @ gram)[:, 0]
    coefficients = solve_small_problems(
        gram,
        linear,
        rows.coefficients,
        sizes=is_member.sum(dim=1),
        alpha=rows.alpha,
        beta=rows.beta,
        tol=rows.inner_tol,
    )
    residuals = _residuals(rows, dictionary, coefficients)
    correlations = (residuals[:, None] @ atoms.mT)[:, 0]
    return coefficients, residuals, torch.where(is_member, correlations, 0)


def _residuals(rows: WorkingRows, dictionary: Tensor, coefficients: Tensor) -> Tensor:
    """Subtract the expressions in float64: their leading digits cancel."""
    if dictionary.device.type == "cpu" and has_numba():
        from selfexpress.solvers.compiled_scan import exact_residuals

        return exact_residuals(rows.targets, dictionary, rows.members, coefficients)
    atoms = dictionary[rows.members.clamp_min(0)].double()  # (B, W, D)
    expressed = (coefficients.double()[:, None] @ atoms)[:, 0]
    return (rows.targets.double() - expressed).to(rows.targets.dtype)
