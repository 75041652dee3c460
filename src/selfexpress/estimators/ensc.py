"""Elastic-net subspace clustering as a scikit-learn estimator."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
import torch
from torch import Tensor

from selfexpress.config import require_choice, require_count
from selfexpress.errors import ConfigError
from selfexpress.estimators.inductive import Expressed, InductiveClusterer, Plan
from selfexpress.estimators.settings import chosen_candidates, require_references
from selfexpress.estimators.solver import require_solved
from selfexpress.rows.sources import ArraySource, RowSource
from selfexpress.solvers.problem import GAMMA_SCALES, ElasticNetConfig
from selfexpress.training.choices import choose_exact_gamma, choose_graph, is_auto
from selfexpress.training.gamma import require_large_enough, smallest_gamma

PRECISIONS = ("auto", "float32", "float64")
# Rounding of float32 products, relative to gamma, with a margin.
_FLOAT32_LIMIT = 1e-6
# Of the search for gamma.
_BLOCK_SIZE = 16_384
_L1_RATIO = 0.9
# Stands for one that is not known yet where the other settings are checked.
_ANY_GAMMA = 10.0


class EnSC(InductiveClusterer):
    """Elastic-net subspace clustering, solved to a certified optimum.

    Every row x_j is expressed by the others with the coefficients that minimise ::

        gamma/2 |x_j - sum_i c_i x_i|^2 + l1_ratio |c|_1 + (1 - l1_ratio)/2 |c|^2

    and the graph of the coefficients is clustered. By default a row is expressed by
    those most like it, and where there are more than 20,000 rows the graph is built of
    a sample and the others are assigned by it: time grows linearly with the rows. This
    is what :class:`~selfexpress.SENet` does without a network.
    ``n_candidates=None, n_cluster_samples=None`` solves the whole problem.
    ``l1_ratio=1`` is sparse subspace clustering (SSC), ``l1_ratio=0`` least-squares
    regression, in closed form if solved whole.

    Rows are scaled to unit length first: only their direction counts. A row of zeros
    gets no coefficients and expresses nobody.

    Parameters
    ----------
    n_clusters : int or "auto"
        "auto" counts them in the graph, from 2 to 100: see :doc:`/how-it-works`.
    gamma : float or "auto"
        Weight of the reconstruction against the penalty. "auto" is 12 times what a
        typical row needs for a coefficient that is not zero, or 6 times if ``l1_ratio``
        is below 0.5.
    l1_ratio : float or "auto"
        Share of the l1 norm in the elastic net, 0 to 1. Lower values connect the
        graph better, higher values keep subspaces apart better. "auto" is 0.9, and
        0.3 for two or three clusters of fewer than 2,000 rows.
    gamma_scale : {"absolute", "relative"}
        ``"absolute"`` takes ``gamma`` as it is, like SENet. ``"relative"`` takes
        ``gamma * l1_ratio / max_i |<x_i, x_j>|`` for row j, like the method's first
        implementation: 1 is the largest value whose solution is all zero. The same
        number means different problems in the two.
    n_candidates : int, "auto" or None
        Rows most like each that may express it; None for all rows, which "auto" takes
        where they are few.
    tol : float
        Largest violation of the optimality conditions accepted, in units of the
        gradient, and largest duality gap relative to the objective.
    max_iter : int
        Rounds of the active-set method for a row.
    n_nonzero : int or None
        Coefficients kept of each row, the largest; None for all of them, or for 1000
        where ``l1_ratio=0`` makes none of them zero.
    affinity : {"auto", "symmetric", "squared_cosines", "weighted_neighbors", \
"nearest_neighbors", "combined"}
        As of :class:`~selfexpress.SENet`.
    n_neighbors : int
        Rows joined to each by an affinity of neighbours.
    n_eigenvectors : int, "auto" or None
        Dimension of the spectral embedding, as of :class:`~selfexpress.SENet`; None for
        ``n_clusters``.
    n_init : int
        Restarts of k-means.
    batch_size : int or None
        Rows solved together; None for what suits the device.
    block_size : int or None
        Rows compared with a batch at a time; None for what suits the device. Memory
        grows with the product of the two, not with the square of the data.
    n_references : int or "auto"
        Rows of the graph, where it is built of a sample. "auto" is 20,000.
    n_cluster_samples : int, "auto" or None
        Rows drawn at random to build the graph of; all others are assigned by them.
        None for all rows, which "auto" takes of up to 20,000.
    center : bool or "auto"
        Whether the mean of the rows is subtracted before they are scaled. "auto" does
        so where all rows point nearly the same way, as spectra do.
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
        Of all rows.
    n_clusters_ : int
        As asked for, or as counted.
    sample_indices_ : ndarray of shape (n_clustered,)
        Rows that the graph was built of, in order; the next six attributes are theirs.
    coefficients_ : scipy.sparse.csr_array of shape (n_clustered, n_clustered)
        Row j expresses row ``sample_indices_[j]``.
    kkt_violation_ : ndarray of shape (n_clustered,)
        Largest violation of the optimality conditions by each row, before
        ``n_nonzero`` dropped entries.
    duality_gap_ : ndarray of shape (n_clustered,)
        Bound of each row's distance to its least objective, likewise.
    objective_ : ndarray of shape (n_clustered,)
        Value of each row's objective, likewise.
    n_iter_ : int
        Most rounds any row took.
    affinity_matrix_ : scipy.sparse.csr_array of shape (n_clustered, n_clustered)
    embedding_ : ndarray of shape (n_clustered, n_eigenvectors)
    eigenvalues_ : ndarray of shape (n_eigenvectors,)
        Of the graph's normalised Laplacian.
    references_ : References
        What :meth:`predict` needs of the fitted rows.
    center_ : ndarray of shape (n_features,) or None
        What was subtracted from the rows.
    settings_ : dict of str to object
        What "auto" became in this fit; ``certificate``, how near the coefficients are
        to the optimum (:doc:`/how-it-works`).
    timings_ : dict of str to float
        Seconds by stage.
    n_features_in_ : int

    Examples
    --------
    >>> from selfexpress import EnSC, make_subspaces
    >>> data = make_subspaces(3, dimension=2, n_features=10, n_samples=40,
    ...                       random_state=0)
    >>> model = EnSC(3, random_state=0).fit(data.X)
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
        gamma: float | str = "auto",
        l1_ratio: float | str = "auto",
        gamma_scale: str = "absolute",
        n_candidates: int | str | None = "auto",
        tol: float = 1e-3,
        max_iter: int = 100,
        n_nonzero: int | None = None,
        affinity: str = "auto",
        n_neighbors: int = 3,
        n_eigenvectors: int | str | None = "auto",
        n_init: int = 20,
        batch_size: int | None = None,
        block_size: int | None = None,
        n_references: int | str = "auto",
        n_cluster_samples: int | str | None = "auto",
        center: bool | str = "auto",
        precision: str = "auto",
        device: str | torch.device = "auto",
        verbose: bool | int = False,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.gamma = gamma
        self.l1_ratio = l1_ratio
        self.gamma_scale = gamma_scale
        self.n_candidates = n_candidates
        self.tol = tol
        self.max_iter = max_iter
        self.n_nonzero = n_nonzero
        self.affinity = affinity
        self.n_neighbors = n_neighbors
        self.n_eigenvectors = n_eigenvectors
        self.n_init = n_init
        self.batch_size = batch_size
        self.block_size = block_size
        self.n_references = n_references
        self.n_cluster_samples = n_cluster_samples
        self.center = center
        self.precision = precision
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def _plan(self, source: RowSource, device: torch.device) -> Plan:
        ours = choose_graph(self.n_clusters, len(source))
        l1_ratio = ours["l1_ratio"] if is_auto(self.l1_ratio) else self.l1_ratio
        gamma = _ANY_GAMMA if is_auto(self.gamma) else self.gamma
        config = self._problem(gamma, l1_ratio)
        require_choice("gamma_scale", self.gamma_scale, GAMMA_SCALES)
        require_choice("precision", self.precision, PRECISIONS)
        require_references(self.n_references)
        if self.n_candidates is not None and not is_auto(self.n_candidates):
            advice = "Use 'auto', or None for all rows."
            require_count("n_candidates", self.n_candidates, advice=advice)
        graph = "combined" if ours["affinity"] == "symmetric" else ours["affinity"]
        affinity = graph if is_auto(self.affinity) else self.affinity
        settings = {"l1_ratio": l1_ratio, "affinity": affinity}
        return Plan(
            **self._planned_rows(source, device, dtype=self._dtype(config)),
            cluster=self._cluster_config(len(source), affinity=affinity),
            settings=settings,
        )

    def _expressed(self, plan: Plan) -> Expressed:
        with self._timed("coefficients"):
            rows = self._graph_rows(plan)
            self._decide_gamma(rows)
            found = self._exact(rows, self._candidates(rows))
        require_solved(found.coefficients)
        self.kkt_violation_ = found.kkt_violation
        self.duality_gap_ = found.duality_gap
        self.objective_ = found.objective
        self.n_iter_ = int(found.n_iter.max())
        return Expressed(found.coefficients, rows)

    def _candidates(self, rows: Tensor) -> int | None:
        l1_ratio = self.settings_["l1_ratio"]
        is_whole = l1_ratio == 0 or self.gamma_scale == "relative"
        if is_auto(self.n_candidates) and is_whole and not is_auto(self.gamma):
            return None
        return chosen_candidates(self.n_candidates, *rows.shape)

    def _decide_gamma(self, rows: Tensor) -> None:
        """Choose an absolute gamma; a relative one is another for every row."""
        chosen = self.settings_
        chosen["gamma"] = self.gamma
        if is_auto(self.gamma):
            source = ArraySource(rows, device=rows.device)
            l1_ratio = chosen["l1_ratio"] or _L1_RATIO
            bound = smallest_gamma(source, l1_ratio, block_size=_BLOCK_SIZE)
            require_large_enough(np.inf, bound)
            chosen["gamma"] = choose_exact_gamma(
                self.gamma, "absolute", bound, l1_ratio
            )

    def _elastic_net(self) -> ElasticNetConfig:
        return self._problem(self.settings_["gamma"], self.settings_["l1_ratio"])

    def _problem(self, gamma: Any, l1_ratio: Any) -> ElasticNetConfig:
        names = set(signature(ElasticNetConfig).parameters) & set(self.get_params())
        given = {name: getattr(self, name) for name in names}
        given |= {"gamma": gamma, "l1_ratio": l1_ratio}
        if is_auto(self.gamma):
            given["gamma_scale"] = "absolute"
        config = ElasticNetConfig(**given)
        if config.gamma_scale == "relative" and config.gamma <= 1:
            raise ConfigError(
                "gamma must be above 1 where gamma_scale is 'relative', as up to 1 all "
                f"coefficients are zero, got {config.gamma!r}. Use for example 100."
            )
        return config

    def _dtype(self, config: ElasticNetConfig) -> torch.dtype:
        if self.precision == "auto":
            is_fine = config.tol < _FLOAT32_LIMIT * config.gamma
            return torch.float64 if is_fine else torch.float32
        return torch.float64 if self.precision == "float64" else torch.float32
