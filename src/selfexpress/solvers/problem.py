"""The elastic-net self-expression problem: its settings and what a solver returns.

Row x of the data is expressed by the rows x_i of a dictionary, itself left out::

    gamma / 2 |x - sum_i c_i x_i|^2 + l1_ratio |c|_1 + (1 - l1_ratio) / 2 |c|^2
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from selfexpress.config import (
    require_choice,
    require_count,
    require_positive,
    require_share,
)
from selfexpress.errors import ConfigError

GAMMA_SCALES = ("absolute", "relative")

# Called with the rows solved so far and the number of rows.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ElasticNetConfig:
    """Weights of the objective and when to stop.

    Attributes
    ----------
    gamma : float
        Weight of the reconstruction; see ``gamma_scale``.
    l1_ratio : float
        Share of the l1 norm in the penalty: 1 is sparse subspace clustering, 0 is
        least squares.
    gamma_scale : {"absolute", "relative"}
        ``"absolute"`` uses ``gamma`` for every row. ``"relative"`` uses
        ``gamma * l1_ratio / max_i |<x_i, x>|`` for row x: at 1 its solution is just
        zero, so that ``gamma`` above 1 says how far beyond.
    tol : float
        Largest violation of the optimality conditions accepted, in the units of the
        objective's gradient, and largest duality gap relative to the objective.
    max_iter : int
        Rounds of growing the working set and solving on it.
    n_nonzero : int, optional
        Keep this many of the largest coefficients of each row; all unless given.
    batch_size : int, optional
        Rows solved together; 512 on a CPU and 8192 on a GPU unless given, and 512 on
        both for least squares.
    block_size : int, optional
        Rows of the dictionary compared with a batch at a time; 8192 on a CPU and
        32768 on a GPU unless given, and 8192 on both for least squares.
    is_local : bool
        Solve on the first working set only: the optimum, and its certificate, are then
        those among the candidates, and time grows linearly with the rows.
    """

    gamma: float = 200.0
    l1_ratio: float = 0.9
    gamma_scale: str = "absolute"
    tol: float = 1e-3
    max_iter: int = 100
    n_nonzero: int | None = None
    batch_size: int | None = None
    block_size: int | None = None
    is_local: bool = False

    def __post_init__(self) -> None:
        require_positive("gamma", self.gamma, advice="The paper uses 200 for images.")
        require_share("l1_ratio", self.l1_ratio, advice="The paper uses 0.9.")
        require_choice("gamma_scale", self.gamma_scale, GAMMA_SCALES)
        require_positive("tol", self.tol, advice="Use for example 1e-3.")
        require_count("max_iter", self.max_iter, advice="Use for example 100.")
        if self.n_nonzero is not None:
            advice = "Use None to keep all of them."
            require_count("n_nonzero", self.n_nonzero, advice=advice)
        if self.batch_size is not None:
            require_count("batch_size", self.batch_size, advice="Use for example 512.")
        if self.block_size is not None:
            advice = "Use for example 8192."
            require_count("block_size", self.block_size, advice=advice)
        require_scale(self.gamma_scale, self.l1_ratio)


def require_scale(gamma_scale: str, l1_ratio: float) -> None:
    """Refuse a gamma that is relative where there is nothing to relate it to."""
    if gamma_scale == "relative" and l1_ratio == 0:
        raise ConfigError(
            "gamma_scale must be 'absolute' where l1_ratio is 0, got 'relative'. "
            "Without an l1 norm no gamma makes the solution zero."
        )


@dataclass(frozen=True)
class Expression:
    """Coefficients of rows and the proof of their quality.

    Attributes
    ----------
    coefficients : csr_array of shape (n_rows, n_dictionary)
        Row j expresses row j; only the ``n_nonzero`` largest where that was asked.
    kkt_violation : ndarray of shape (n_rows,)
        Largest violation of the optimality conditions, before entries were dropped.
    duality_gap : ndarray of shape (n_rows,)
        Upper bound of the objective's distance to its minimum, likewise.
    objective : ndarray of shape (n_rows,)
        Value reached, likewise.
    n_iter : ndarray of shape (n_rows,)
        Rounds needed.
    """

    coefficients: sparse.csr_array
    kkt_violation: np.ndarray
    duality_gap: np.ndarray
    objective: np.ndarray
    n_iter: np.ndarray
