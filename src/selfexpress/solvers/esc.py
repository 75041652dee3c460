"""Exemplars by farthest-first search, and the expression of all rows by them.

The cost of a row is the least value of its elastic-net objective over the exemplars
chosen so far, itself included once it is one of them. The next exemplar is the row of
largest cost (You, Li, Robinson and Vidal, ECCV 2018, with ``l1_ratio = 1``).

Shapes: N rows, D features, E exemplars, B rows of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from selfexpress.config import require_count
from selfexpress.errors import ConfigError
from selfexpress.ops.precision import float32_products
from selfexpress.solvers.compiled import has_numba
from selfexpress.solvers.ensc import dictionary_expression
from selfexpress.solvers.problem import ElasticNetConfig, Expression, Progress
from selfexpress.solvers.small_problems import solve_small_problems

# Rows whose costs are brought up to date together at first; then twice as many.
FIRST_BATCH = {"cpu": 64, "cuda": 256}
# Costs must order rows, so that they are solved far beyond ``tol``.
COST_TOL = 1e-9
# Costs that differ by less, relatively, are equal: rows that no exemplar helps are.
EQUAL_COSTS = 1e-9


@dataclass(frozen=True)
class ExemplarExpression:
    """Exemplars and what expresses every row by them.

    Attributes
    ----------
    exemplars : ndarray of shape (E,)
        Positions of the exemplars in the order they were chosen.
    expression : Expression
        Its coefficients have one column per exemplar.
    """

    exemplars: np.ndarray
    expression: Expression


def exemplar_expression(
    rows: Tensor,
    n_exemplars: int,
    config: ElasticNetConfig,
    *,
    seed: int,
    progress: Progress | None = None,
) -> ExemplarExpression:
    """Choose exemplars and express every row by them.

    Parameters
    ----------
    rows : Tensor of shape (N, D)
    n_exemplars : int
        All rows where there are fewer.
    config : ElasticNetConfig
        With absolute ``gamma`` and ``l1_ratio`` above 0.
    seed : int
        Chooses the first exemplar.
    progress : callable, optional
        Called with the exemplars chosen and their number.
    """
    require_count("n_exemplars", n_exemplars, advice="Use for example 300.")
    if config.gamma_scale != "absolute" or config.l1_ratio == 0:
        raise ConfigError(
            "The exemplar search must have an absolute gamma and l1_ratio above 0, got "
            f"gamma_scale={config.gamma_scale!r} and l1_ratio={config.l1_ratio!r}. "
            "Costs of different rows cannot be compared otherwise."
        )
    first = int(np.random.default_rng(seed).integers(len(rows)))
    n_exemplars = min(n_exemplars, len(rows))
    chosen = farthest_first(rows, n_exemplars, config, first=first, progress=progress)
    dictionary = rows[torch.from_numpy(chosen).to(rows.device)]
    return ExemplarExpression(chosen, dictionary_expression(rows, dictionary, config))


def farthest_first(
    rows: Tensor,
    n_exemplars: int,
    config: ElasticNetConfig,
    *,
    first: int,
    progress: Progress | None = None,
) -> np.ndarray:
    """Return the positions of ``n_exemplars`` rows, each the costliest in its turn.

    Costs only fall as exemplars are added. An old cost is therefore an upper bound,
    and rows are brought up to date in the order of their bounds until the largest
    cost found is above all bounds that are left. Of equal costs the first row wins.

    Parameters
    ----------
    rows : Tensor of shape (N, D)
    n_exemplars : int
        At most N.
    config : ElasticNetConfig
    first : int
        The exemplar to start from.
    progress : callable, optional
    """
    if has_numba():
        # One small step after the other keeps a GPU waiting, and a processor busy.
        rows = rows.cpu()
    with float32_products("highest"):
        costs = _Costs(rows, n_exemplars, config, first)
        for n_chosen in range(1, n_exemplars):
            costs.add_exemplar(_costliest(costs))
            if progress is not None:
                progress(n_chosen + 1, n_exemplars)
    return costs.chosen.cpu().numpy()


def _costliest(costs: _Costs) -> int:
    """Return the row of largest cost, updating as few costs as that needs."""
    order = costs.bounds.argsort(descending=True, stable=True)
    enough = -torch.inf
    start, size = 0, FIRST_BATCH[order.device.type]
    while start < len(order) and enough <= costs.bounds[order[start]]:
        batch = order[start : start + size]
        costs.update(batch)
        enough = max(enough, (1 - EQUAL_COSTS) * float(costs.bounds[batch].max()))
        start, size = start + size, 2 * size
    return int((costs.bounds >= enough).nonzero()[0, 0])


class _Costs:
    """Upper bounds of all rows' costs and the coefficients that reach them."""

    def __init__(
        self, rows: Tensor, n_exemplars: int, config: ElasticNetConfig, first: int
    ) -> None:
        self.rows = rows
        self.config = config
        self.chosen = torch.zeros(0, dtype=torch.int64, device=rows.device)
        self._gram = rows.new_zeros((0, 0), dtype=torch.float64)
        self._coefficients = rows.new_zeros((len(rows), n_exemplars))
        self.bounds = config.gamma / 2 * rows.double().square().sum(dim=1)
        self.add_exemplar(first)
        for batch in torch.arange(len(rows), device=rows.device).split(4096):
            self.update(batch)

    def add_exemplar(self, position: int) -> None:
        """Add a row to the exemplars; it is never chosen again."""
        added = torch.tensor([position], device=self.rows.device)
        self.chosen = torch.cat([self.chosen, added])
        exemplars = self.rows[self.chosen].double()
        self._gram = exemplars @ exemplars.T
        self.bounds[position] = -torch.inf

    def update(self, batch: Tensor) -> None:
        """Bring the costs of some rows up to date."""
        batch = batch[self.bounds[batch] > -torch.inf]
        gamma, l1_ratio = self.config.gamma, self.config.l1_ratio
        rows, n_chosen = self.rows[batch].double(), len(self.chosen)
        linear = rows @ self.rows[self.chosen].double().T  # (B, E)
        ones = torch.ones_like(linear[:, 0])
        solution = solve_small_problems(
            self._gram[None],
            linear,
            self._coefficients[batch, :n_chosen].double(),
            sizes=torch.full_like(batch, n_chosen),
            alpha=ones * l1_ratio / gamma,
            beta=ones * (1 - l1_ratio) / gamma,
            tol=ones * COST_TOL / gamma,
        )
        self._coefficients[batch, :n_chosen] = solution.to(self._coefficients.dtype)
        residuals = rows - solution @ self.rows[self.chosen].double()
        self.bounds[batch] = (
            gamma / 2 * residuals.square().sum(dim=1)
            + l1_ratio * solution.abs().sum(dim=1)
            + (1 - l1_ratio) / 2 * solution.square().sum(dim=1)
        )
