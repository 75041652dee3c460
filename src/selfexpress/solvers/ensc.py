"""Exact elastic-net self-expression: an active-set method on batches of rows.

Every row keeps a working set of dictionary rows that may have a coefficient. A round
solves the small elastic nets on the working sets, compares all residuals with all rows
by blocked matrix products, and lets the worst violators of the optimality conditions
in. A row is finished when nothing violates them by more than the tolerance. See
:mod:`selfexpress.solvers.problem` for the objective.

Shapes: M rows to express, N dictionary rows, D features, B rows of a batch.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from selfexpress.ops.precision import float32_products
from selfexpress.solvers.active_set import WorkingRows, solve_candidates, solve_rows
from selfexpress.solvers.batches import solve_in_batches
from selfexpress.solvers.certificate import PROOF, Certificate
from selfexpress.solvers.collected_rows import CollectedRows
from selfexpress.solvers.least_squares import least_squares_expression
from selfexpress.solvers.problem import ElasticNetConfig, Expression, Progress


def elastic_net_expression(
    rows: Tensor,
    config: ElasticNetConfig,
    *,
    index: Tensor | None = None,
    candidates: Tensor | None = None,
    progress: Progress | None = None,
) -> Expression:
    """Express rows by all other rows, to a certified optimum.

    Parameters
    ----------
    rows : Tensor of shape (N, D), float32 or float64
        On the device that is to do the work. float64 is needed for ``config.tol``
        below about ``1e-6 * gamma``.
    config : ElasticNetConfig
    index : Tensor of shape (M,), int64, optional
        Positions of the rows to express; all of them unless given.
    candidates : Tensor of shape (M, A), int64, optional
        Working sets to start with, instead of the rows most like each; -1 pads.
    progress : callable, optional
        Called with the rows finished and the rows in all after every batch.

    Returns
    -------
    Expression

    Warns
    -----
    ConvergenceWarning
        Where ``config.max_iter`` rounds ended before the tolerance was met.
    """
    if index is None:
        index = torch.arange(len(rows), device=rows.device)
    if config.l1_ratio == 0:
        return least_squares_expression(rows, config, index=index, progress=progress)
    return _express(_Task(rows, index, rows, index, candidates), config, progress)


def candidate_coefficients(
    rows: Tensor, dictionary: Tensor, config: ElasticNetConfig, candidates: Tensor
) -> Tensor:
    """Return the coefficients of rows on candidates of a dictionary, (M, A).

    They minimise the objective among the candidates; there is no certificate.
    """
    found = rows.new_zeros(candidates.shape)

    def solve(batch: slice) -> None:
        found[batch] = solve_candidates(
            rows[batch], dictionary, config, candidates[batch]
        )

    with float32_products("highest"):
        solve_in_batches(
            solve,
            len(rows),
            batch_size=config.batch_size,
            device=rows.device,
            progress=None,
        )
    return found


def dictionary_expression(
    rows: Tensor,
    dictionary: Tensor,
    config: ElasticNetConfig,
    *,
    progress: Progress | None = None,
) -> Expression:
    """Express rows by a dictionary, leaving out none of it; ``l1_ratio`` above 0."""
    index = torch.arange(len(rows), device=rows.device)
    nobody = torch.full_like(index, -1)
    return _express(_Task(rows, index, dictionary, nobody), config, progress)


@dataclass(frozen=True)
class _Task:
    """Which rows to express by which, without copies of either."""

    rows: Tensor  # (M', D)
    index: Tensor  # (M,), those to express
    dictionary: Tensor  # (N, D)
    own: Tensor  # (M,), where each stands in the dictionary, or -1
    candidates: Tensor | None = None  # (M, A), of the dictionary


def _express(
    task: _Task, config: ElasticNetConfig, progress: Progress | None
) -> Expression:
    """Solve a task batch by batch."""
    n_rows = len(task.index)
    results = _Results(n_rows, len(task.dictionary), config)

    def solve(batch: slice) -> None:
        targets = task.rows[task.index[batch]]
        finish = functools.partial(results.add, batch.start)
        given = None if task.candidates is None else task.candidates[batch]
        solve_rows(
            targets,
            task.own[batch],
            task.dictionary,
            config,
            finish,
            candidates=given,
        )

    with float32_products("highest"):
        solve_in_batches(
            solve,
            n_rows,
            batch_size=config.batch_size,
            device=task.rows.device,
            progress=progress,
        )
    if not config.is_local:
        results.warn_if_open()
    return results.expression(task.rows.dtype)


class _Results:
    """Finished rows, whichever order they finish in."""

    def __init__(self, n_rows: int, n_columns: int, config: ElasticNetConfig) -> None:
        self.config = config
        self._coefficients = CollectedRows((n_rows, n_columns), config.n_nonzero)
        self._proof = {name: np.zeros(n_rows) for name in PROOF}
        self._n_iter = np.zeros(n_rows, dtype=np.int64)

    def add(
        self, start: int, rows: WorkingRows, proof: Certificate, n_iter: int
    ) -> None:
        """Store rows of the batch that begins at ``start``."""
        place = rows.place + start
        self._coefficients.add(place, rows.members, rows.coefficients)
        index = place.cpu().numpy()
        for name, values in self._proof.items():
            values[index] = getattr(proof, name).cpu().numpy()
        self._n_iter[index] = n_iter

    def warn_if_open(self) -> None:
        """Warn if some rows are not solved."""
        proof = Certificate(*(torch.from_numpy(self._proof[name]) for name in PROOF))
        proof.warn_if_open(
            self.config.tol, after=f"after max_iter={self.config.max_iter} rounds"
        )

    def expression(self, dtype: torch.dtype) -> Expression:
        """Return everything stored."""
        return Expression(
            self._coefficients.matrix(dtype),
            kkt_violation=self._proof["violation"],
            duality_gap=self._proof["gap"],
            objective=self._proof["objective"],
            n_iter=self._n_iter,
        )
