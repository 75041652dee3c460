"""Elastic-net subspace clustering as a scikit-learn estimator."""

from __future__ import annotations

from inspect import signature

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from selfexpress.config import require_choice
from selfexpress.errors import ConfigError
from selfexpress.estimators.solver import SolverClusterer
from selfexpress.solvers.ensc import elastic_net_expression
from selfexpress.solvers.problem import ElasticNetConfig, Progress

PRECISIONS = ("auto", "float32", "float64")
# Rounding of float32 products, relative to gamma, with a margin.
_FLOAT32_LIMIT = 1e-6


class EnSC(SolverClusterer):
    """Elastic-net subspace clustering, solved to a certified optimum.

    Every row x_j is expressed by the others with the coefficients that minimise ::

        gamma/2 |x_j - sum_i c_i x_i|^2 + l1_ratio |c|_1 + (1 - l1_ratio)/2 |c|^2

    and the graph of the coefficients is clustered. This is the problem that
    :class:`~selfexpress.SENet` approximates by a network. ``l1_ratio=1`` is sparse
    subspace clustering (SSC), ``l1_ratio=0`` least-squares regression, in closed form.

    Rows are scaled to unit length first: only their direction counts. A row of zeros
    gets no coefficients and expresses nobody.

    Parameters
    ----------
    n_clusters : int or "auto"
        "auto" counts them in the graph, from 2 to 100: see :doc:`/how-it-works`. The
        affinity should be "symmetric" then: few neighbours leave a graph in pieces.
    gamma : float
        Weight of the reconstruction against the penalty.
    l1_ratio : float
        Share of the l1 norm in the elastic net, 0 to 1. Lower values connect the
        graph better, higher values keep subspaces apart better.
    gamma_scale : {"absolute", "relative"}
        ``"absolute"`` takes ``gamma`` as it is, like SENet. ``"relative"`` takes
        ``gamma * l1_ratio / max_i |<x_i, x_j>|`` for row j, like the method's first
        implementation: 1 is the largest value whose solution is all zero. The same
        number means different problems in the two.
    tol : float
        Largest violation of the optimality conditions accepted, in units of the
        gradient, and largest duality gap relative to the objective.
    max_iter : int
        Rounds of the active-set method for a row.
    n_nonzero : int or None
        Coefficients kept of each row, the largest; None for all of them, or for 1000
        where ``l1_ratio=0`` makes none of them zero.
    affinity : {"nearest_neighbors", "symmetric"}
        Graph of the nearest rows in coefficient space, or ``|C| + |C|^T``.
    n_neighbors : int
        Rows joined to each by ``affinity="nearest_neighbors"``.
    n_eigenvectors : int or None
        Dimension of the spectral embedding; None for ``n_clusters``.
    n_init : int
        Restarts of k-means.
    batch_size : int or None
        Rows solved together; None for what suits the device.
    block_size : int or None
        Rows compared with a batch at a time; None for what suits the device. Memory
        grows with the product of the two, not with the square of the data.
    precision : {"auto", "float32", "float64"}
        Of the arithmetic; "auto" is float64 where ``tol`` asks for it.
    device : str or torch.device
        "auto" takes a GPU if there is one.
    verbose : bool or int
        Whether to show a progress bar on stderr.
    random_state : int, RandomState or None
        Of k-means; the coefficients do not depend on it.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
    n_clusters_ : int
        As asked for, or as counted.
    coefficients_ : scipy.sparse.csr_array of shape (n_samples, n_samples)
        Row j expresses sample j.
    kkt_violation_ : ndarray of shape (n_samples,)
        Largest violation of the optimality conditions by each row, before
        ``n_nonzero`` dropped entries.
    duality_gap_ : ndarray of shape (n_samples,)
        Bound of each row's distance to its least objective, likewise.
    objective_ : ndarray of shape (n_samples,)
        Value of each row's objective, likewise.
    n_iter_ : int
        Most rounds any row took.
    affinity_matrix_ : scipy.sparse.csr_array of shape (n_samples, n_samples)
    embedding_ : ndarray of shape (n_samples, n_eigenvectors)
    eigenvalues_ : ndarray of shape (n_eigenvectors,)
        Of the graph's normalised Laplacian.
    timings_ : dict of str to float
        Seconds by stage.
    n_features_in_ : int

    Examples
    --------
    >>> from selfexpress import EnSC, make_subspaces
    >>> data = make_subspaces(3, dimension=2, n_features=10, n_samples=40,
    ...                       random_state=0)
    >>> model = EnSC(3, affinity="symmetric", random_state=0).fit(data.X)
    >>> bool(model.kkt_violation_.max() <= model.tol)
    True
    """

    kkt_violation_: np.ndarray
    duality_gap_: np.ndarray
    objective_: np.ndarray
    n_iter_: int

    def __init__(
        self,
        n_clusters: int | str = 8,
        *,
        gamma: float = 200.0,
        l1_ratio: float = 0.9,
        gamma_scale: str = "absolute",
        tol: float = 1e-3,
        max_iter: int = 100,
        n_nonzero: int | None = None,
        affinity: str = "nearest_neighbors",
        n_neighbors: int = 3,
        n_eigenvectors: int | None = None,
        n_init: int = 20,
        batch_size: int | None = None,
        block_size: int | None = None,
        precision: str = "auto",
        device: str | torch.device = "auto",
        verbose: bool | int = False,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.gamma = gamma
        self.l1_ratio = l1_ratio
        self.gamma_scale = gamma_scale
        self.tol = tol
        self.max_iter = max_iter
        self.n_nonzero = n_nonzero
        self.affinity = affinity
        self.n_neighbors = n_neighbors
        self.n_eigenvectors = n_eigenvectors
        self.n_init = n_init
        self.batch_size = batch_size
        self.block_size = block_size
        self.precision = precision
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def _express(
        self, rows: Tensor, *, seed: int, progress: Progress | None
    ) -> sparse.csr_array:
        result = elastic_net_expression(rows, self._config(), progress=progress)
        self.kkt_violation_ = result.kkt_violation
        self.duality_gap_ = result.duality_gap
        self.objective_ = result.objective
        self.n_iter_ = int(result.n_iter.max())
        return result.coefficients

    def _config(self) -> ElasticNetConfig:
        names = signature(ElasticNetConfig).parameters
        config = ElasticNetConfig(**{name: getattr(self, name) for name in names})
        if config.gamma_scale == "relative" and config.gamma <= 1:
            raise ConfigError(
                "gamma must be above 1 where gamma_scale is 'relative', as up to 1 all "
                f"coefficients are zero, got {config.gamma!r}. Use for example 100."
            )
        return config

    def _dtype(self) -> torch.dtype:
        config = self._config()
        require_choice("precision", self.precision, PRECISIONS)
        if self.precision == "auto":
            is_fine = config.tol < _FLOAT32_LIMIT * config.gamma
            return torch.float64 if is_fine else torch.float32
        return torch.float64 if self.precision == "float64" else torch.float32
