"""Coefficients that solve the elastic net exactly, among the rows that may matter.

A network finds coefficients by searching; the problem itself is convex, and small once
it is known which rows may have a coefficient. These candidates are the rows most like
the one to be expressed, beside those that a network gives the largest coefficients.

Shapes: M rows, R references, N rows of a graph, D features, A candidates.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from selfexpress import distributed
from selfexpress.affinity.coefficients import largest_coefficients
from selfexpress.affinity.similar import joined_candidates, similar_rows
from selfexpress.affinity.sparse_rows import SparseRows
from selfexpress.errors import ConvergenceWarning
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.rows.sources import ArraySource
from selfexpress.solvers.ensc import candidate_coefficients, elastic_net_expression
from selfexpress.solvers.problem import ElasticNetConfig, Expression, Progress

# Rows whose optimum over all rows is compared with that among the candidates.
_N_JUDGED = 50
_LEAST_L1 = 1e-3
# Violation at which the objective is judged: it is flat there.
_ENOUGH = 5e-2
# An objective of rows of zeros, which nothing exceeds.
_TINY = 1e-30


@dataclass(frozen=True)
class Candidates:
    """Who may express whom.

    Attributes
    ----------
    n_similar : int or None
        Rows most like each; None lets every row express every other.
    network, keys : SelfExpressiveNetwork and Tensor of shape (R, P), optional
        Give as many candidates again, those of its largest coefficients.
    """

    n_similar: int | None
    network: SelfExpressiveNetwork | None = None
    keys: Tensor | None = None

    def find(
        self, rows: Tensor, references: Tensor, own: Tensor | None = None
    ) -> Tensor:
        """Return the positions among the references, (M, A); -1 pads."""
        assert self.n_similar is not None
        found = similar_rows(rows, references, n_similar=self.n_similar, own=own)
        if self.network is None or self.keys is None:
            return found
        learned = largest_coefficients(
            self.network,
            ArraySource(rows, device=rows.device),
            self.keys,
            n_nonzero=self.n_similar,
            exclude_self=False,
        )
        columns = learned.column.masked_fill(learned.value == 0, -1)
        if own is not None:
            columns = columns.masked_fill(columns == own[:, None], -1)
        return joined_candidates(found, columns)


@dataclass(frozen=True)
class ExactCoefficients:
    """What the rows of a graph need to express each other.

    Attributes
    ----------
    expression : Expression
        Of all N rows by all N; its certificate speaks of the candidates.
    certificate : dict of str to float
        ``violation``, the largest violation of the optimality conditions among the
        candidates; ``excess``, by how much a sample of rows misses the least objective
        over all rows, as a share of it; ``n_judged``, the size of that sample.
    """

    expression: Expression
    certificate: dict[str, float]


def exact_coefficients(
    rows: Tensor,
    config: ElasticNetConfig,
    candidates: Candidates,
    *,
    judge: bool = True,
    progress: Progress | None = None,
) -> ExactCoefficients:
    """Express every row by the others.

    Many processes solve for a part of the rows each.

    Parameters
    ----------
    rows : Tensor of shape (N, D)
        Of unit length.
    config : ElasticNetConfig
    candidates : Candidates
    judge : bool
        Whether to make a certificate.
    progress : callable, optional
    """
    start, stop = distributed.own_range(len(rows))
    own = torch.arange(start, stop, device=rows.device)
    given = None
    if candidates.n_similar is not None:
        config = replace(config, is_local=True)
        given = candidates.find(rows[own], rows, own)
    found = elastic_net_expression(
        rows, config, index=own, candidates=given, progress=progress
    )
    expression = _gathered(found, rows.device)
    certificate = _certificate(rows, expression, config) if judge else {}
    return ExactCoefficients(expression, certificate)


def express_new_rows(
    rows: Tensor, references: Tensor, config: ElasticNetConfig, candidates: Candidates
) -> SparseRows:
    """Express new rows by references, among the candidates only, (M, R).

    Least squares, for which rows must be expressed by all others, gets a trace of the
    l1 norm: what is far from a row stays out.
    """
    given = candidates.find(rows, references)
    config = replace(config, l1_ratio=max(config.l1_ratio, _LEAST_L1))
    value = candidate_coefficients(rows, references, config, given)
    column = given.clamp_min(0)
    if config.n_nonzero is not None and config.n_nonzero < value.shape[1]:
        kept = value.abs().topk(config.n_nonzero, dim=1).indices
        column, value = column.gather(1, kept), value.gather(1, kept)
    return SparseRows(column, value.float(), len(references))


def _gathered(found: Expression, device: torch.device) -> Expression:
    """Put the rows together that the processes solved for."""
    if distributed.n_ranks() == 1:
        return found
    padded = SparseRows.from_csr(found.coefficients, device)
    width = int(distributed.largest(torch.tensor(padded.value.shape[1]).to(device)))
    missing = (0, width - padded.value.shape[1])
    column, value = (
        distributed.gather_rows(torch.nn.functional.pad(part, missing))
        for part in (padded.column, padded.value)
    )
    proof = {
        name: distributed.gather_rows(torch.from_numpy(getattr(found, name)))
        for name in ("kkt_violation", "duality_gap", "objective", "n_iter")
    }
    coefficients = SparseRows(column, value, found.coefficients.shape[1]).to_csr()
    return Expression(coefficients, **{name: p.numpy() for name, p in proof.items()})


def _certificate(
    rows: Tensor, expression: Expression, config: ElasticNetConfig
) -> dict[str, float]:
    """Compare some rows, evenly spaced, with their optimum over all rows."""
    violation = float(expression.kkt_violation.max())
    if not config.is_local:
        return {"violation": violation, "excess": 0.0, "n_judged": len(rows)}
    n_judged = min(_N_JUDGED, len(rows))
    index = torch.arange(n_judged, device=rows.device) * len(rows) // n_judged
    config = replace(config, is_local=False, tol=max(config.tol, _ENOUGH), max_iter=20)
    with warnings.catch_warnings():
        # The bound is the better for every round, and a bound all the same.
        warnings.simplefilter("ignore", ConvergenceWarning)
        best = elastic_net_expression(rows, config, index=index).objective.mean()
    reached = expression.objective[index.cpu().numpy()].mean()
    excess = float(max(0.0, reached - best) / max(best, _TINY))
    return {"violation": violation, "excess": excess, "n_judged": n_judged}
