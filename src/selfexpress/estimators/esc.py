"""Exemplar-based subspace clustering as a scikit-learn estimator."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from selfexpress.config import AUTO, require_count
from selfexpress.errors import DegenerateWarning
from selfexpress.estimators.solver import SolverClusterer
from selfexpress.solvers.esc import exemplar_expression
from selfexpress.solvers.problem import ElasticNetConfig, Progress

# Exemplars that "auto" takes of many rows, and rows for each of fewer.
_MOST_EXEMPLARS = 300
_ROWS_AN_EXEMPLAR = 5


class ESC(SolverClusterer):
    """Exemplar-based subspace clustering.

    Chooses exemplars one by one, each the row that those before it express worst;
    then expresses every row by the exemplars and joins the rows whose coefficients are
    nearest. Its cost grows with the number of rows times that of exemplars, and
    small clusters get exemplars as large ones do.

    Rows are scaled to unit length first: only their direction counts.

    Parameters
    ----------
    n_clusters : int or "auto"
        "auto" counts them in the graph, from 2 to 100: see :doc:`/how-it-works`. The
        affinity should be "symmetric" then: few neighbours leave a graph in pieces.
    n_exemplars : int or "auto"
        Rows that express all others. "auto" takes 300, or a fifth of fewer than 1500
        rows: an exemplar expresses itself and no other row.
    gamma : float
        Weight of the reconstruction against the penalty, absolute.
    l1_ratio : float
        Share of the l1 norm in the elastic net, above 0; 1 as published.
    tol : float
        Largest violation of the optimality conditions accepted, in units of the
        gradient, and largest duality gap relative to the objective.
    max_iter : int
        Rounds of the active-set method for a row.
    affinity : {"nearest_neighbors", "symmetric"}
        Graph of the nearest rows in coefficient space, or ``|C| + |C|^T``, which
        joins rows to exemplars only.
    n_neighbors : int
        Rows joined to each by ``affinity="nearest_neighbors"``.
    n_eigenvectors : int or None
        Dimension of the spectral embedding; None for ``n_clusters``.
    n_init : int
        Restarts of k-means.
    device : str or torch.device
        "auto" takes a GPU if there is one.
    verbose : bool or int
        Whether to show a progress bar on stderr.
    random_state : int, RandomState or None
        Of the first exemplar and of k-means.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
    n_clusters_ : int
        As asked for, or as counted.
    exemplars_ : ndarray of shape (n_exemplars,)
        Positions of the exemplars, in the order they were chosen.
    coefficients_ : scipy.sparse.csr_array of shape (n_samples, n_samples)
        Row j expresses sample j; only the columns of exemplars are used. An exemplar
        expresses itself.
    kkt_violation_, duality_gap_ : ndarray of shape (n_samples,)
        Proof of quality of each row's coefficients over the exemplars.
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
    >>> from selfexpress import ESC, make_subspaces
    >>> data = make_subspaces(3, dimension=4, n_features=10, n_samples=40,
    ...                       random_state=0)
    >>> model = ESC(3, n_exemplars=20, n_neighbors=9, random_state=0).fit(data.X)
    >>> model.exemplars_.shape
    (20,)
    """

    exemplars_: np.ndarray
    kkt_violation_: np.ndarray
    duality_gap_: np.ndarray
    n_iter_: int

    def __init__(
        self,
        n_clusters: int | str = 8,
        *,
        n_exemplars: int | str = "auto",
        gamma: float = 150.0,
        l1_ratio: float = 1.0,
        tol: float = 1e-3,
        max_iter: int = 100,
        affinity: str = "nearest_neighbors",
        n_neighbors: int = 3,
        n_eigenvectors: int | None = None,
        n_init: int = 20,
        device: str | torch.device = "auto",
        verbose: bool | int = False,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_exemplars = n_exemplars
        self.gamma = gamma
        self.l1_ratio = l1_ratio
        self.tol = tol
        self.max_iter = max_iter
        self.affinity = affinity
        self.n_neighbors = n_neighbors
        self.n_eigenvectors = n_eigenvectors
        self.n_init = n_init
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def _express(
        self, rows: Tensor, *, seed: int, progress: Progress | None
    ) -> sparse.csr_array:
        config = ElasticNetConfig(
            gamma=self.gamma,
            l1_ratio=self.l1_ratio,
            tol=self.tol,
            max_iter=self.max_iter,
        )
        result = exemplar_expression(
            rows, self._n_chosen(len(rows)), config, seed=seed, progress=progress
        )
        self.exemplars_ = result.exemplars
        self.kkt_violation_ = result.expression.kkt_violation
        self.duality_gap_ = result.expression.duality_gap
        self.n_iter_ = int(result.expression.n_iter.max())
        return _spread(result.expression.coefficients, result.exemplars)

    def _n_chosen(self, n_rows: int) -> int:
        """Return how many exemplars to choose."""
        if self.n_exemplars == AUTO:
            return max(1, min(_MOST_EXEMPLARS, n_rows // _ROWS_AN_EXEMPLAR))
        advice = "Use 'auto', or for example 300."
        require_count("n_exemplars", self.n_exemplars, advice=advice)
        n_exemplars = int(self.n_exemplars)
        if n_exemplars >= n_rows:
            warnings.warn(
                f"n_exemplars should be less than the number of samples, n_samples="
                f"{n_rows}, but is {n_exemplars}: every row is an exemplar, which "
                f"expresses itself and nothing else. {advice}",
                DegenerateWarning,
                stacklevel=4,
            )
        return min(n_exemplars, n_rows)


def _spread(coefficients: sparse.csr_array, exemplars: np.ndarray) -> sparse.csr_array:
    """Move the exemplars' columns to the exemplars' positions among all rows."""
    n_rows = coefficients.shape[0]
    columns = exemplars[coefficients.indices].astype(np.int32)
    spread = sparse.csr_array(
        (coefficients.data, columns, coefficients.indptr), shape=(n_rows, n_rows)
    )
    spread.sort_indices()
    return spread
