"""What the clusterers share that solve for their coefficients instead of learning them.

Their data is held on the device as one matrix, as a rule of unit rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from selfexpress.config import require_flag
from selfexpress.errors import DegenerateError
from selfexpress.estimators.base import SelfExpressiveClusterer
from selfexpress.ops.devices import resolve_device
from selfexpress.ops.precision import own_arithmetic
from selfexpress.ops.self_expression import unit_rows
from selfexpress.rows.sources import RowSource, UnitRows
from selfexpress.solvers.problem import Progress


class SolverClusterer(SelfExpressiveClusterer, ABC):
    """Base of ``SSCOMP`` and ``ESC``.

    A subclass says in :meth:`_express` how rows become sparse coefficients, and may
    offer ``join``: whether weak edges hold a graph in too many pieces together.
    """

    join: bool = False
    # What to do about coefficients that are all zero.
    _if_all_zero = "Raise gamma, or remove rows of zeros."

    @own_arithmetic()
    def fit(self, X: Any, y: None = None) -> Self:
        """Express the rows of ``X`` by each other and cluster them.

        Parameters
        ----------
        X : array-like, Tensor or RowSource of shape (n_samples, n_features)
            NumPy (also memory-mapped), torch on any device, pandas, or a source. It
            is copied to ``device`` as a whole.
        y : None
            Ignored.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If ``X`` or a setting cannot be used.
        DegenerateError
            If every coefficient is zero.
        """
        device = resolve_device(self.device)
        with self._unless_refused():
            source = self._scaled(self._source(X, reset=True, device=device))
            cluster_config = self._cluster_config(len(source))
            require_flag("join", self.join, advice="Use False.")
            seed = self._seed()
        self._drop_earlier_fit()
        self.timings_ = {}
        with self._timed("coefficients"), progress_bar(self.verbose) as progress:
            rows = row_matrix(source, device)
            coefficients = self._express(rows, seed=seed, progress=progress)
        require_solved(coefficients, self._if_all_zero)
        self._cluster(
            coefficients,
            cluster_config,
            seed=seed,
            device=device,
            joining_rows=unit_rows(rows) if self.join else None,
        )
        return self

    def _scaled(self, source: RowSource) -> RowSource:
        """Return the rows to be expressed: of unit length, as only directions count."""
        return UnitRows(source, dtype=self._dtype())

    def _dtype(self) -> torch.dtype:
        """Return the type of the rows to be expressed."""
        return torch.float32

    @abstractmethod
    def _express(
        self, rows: Tensor, *, seed: int, progress: Progress | None
    ) -> sparse.csr_array:
        """Return the coefficients of the scaled rows on each other."""


def require_solved(
    coefficients: sparse.csr_array,
    if_all_zero: str = "Raise gamma, or remove rows of zeros.",
) -> None:
    """Refuse coefficients that diverged, or that are all zero."""
    if not np.isfinite(coefficients.data).all():
        raise DegenerateError(
            "Coefficients must be finite, but the solution has diverged. Lower "
            "gamma, or solve in double precision (EnSC: precision='float64')."
        )
    if coefficients.nnz == 0:
        raise DegenerateError(
            "Some coefficient must not be zero, but all are: no row has another "
            f"that is like it enough. {if_all_zero}"
        )


def row_matrix(source: RowSource, device: torch.device) -> Tensor:
    """Return all rows of a source as one matrix on a device."""
    return torch.cat([block.rows.to(device) for block in source.blocks(8192)])


@contextmanager
def progress_bar(verbose: bool | int) -> Iterator[Progress | None]:
    """Yield what moves a bar on stderr, or nothing to call."""
    if not verbose:
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True)) as bar:
        task = bar.add_task("coefficients", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
