"""Sparse subspace clustering by orthogonal matching pursuit, as an estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from selfexpress.config import require_flag
from selfexpress.estimators.solver import SolverClusterer
from selfexpress.rows.sources import MappedSource, RowSource
from selfexpress.solvers.problem import Progress
from selfexpress.solvers.ssc_omp import PursuitConfig, pursuit_coefficients
from selfexpress.training.choices import is_auto

# Rows that "auto" lets express a row.
_MOST_PURSUED = 10


class SSCOMP(SolverClusterer):
    """Sparse subspace clustering by orthogonal matching pursuit (SSC-OMP).

    Every row picks the row that correlates most with what is left of it, projects on
    all rows picked so far, and repeats; the graph of the coefficients is clustered.
    Greedy, so quicker than :class:`~selfexpress.EnSC` and blind to its objective.

    Rows are scaled to unit length first, unless told otherwise: only their direction
    counts. A row of zeros gets no coefficients and expresses nobody.

    Parameters
    ----------
    n_clusters : int or "auto"
        "auto" counts them in the graph, from 2 to 100: see :doc:`/how-it-works`. The
        affinity should be "symmetric" then: few neighbours leave a graph in pieces.
    n_nonzero : int or "auto"
        Most rows that may express a row; all others where there are fewer. "auto" is
        10, or half the features where these are few: as many rows as there are
        features express anything.
    tol : float
        Share of a row's squared norm that may be left for a pursuit to end earlier.
    normalize : bool
        Whether rows are scaled to unit length. If not, longer rows are picked more
        often. The paper's figures are found this way.
    affinity : {"nearest_neighbors", "symmetric"}
        Graph of the nearest rows in coefficient space, or ``|C| + |C|^T``.
    n_neighbors : int
        Rows joined to each by ``affinity="nearest_neighbors"``.
    n_eigenvectors : int or None
        Dimension of the spectral embedding; None for ``n_clusters``.
    n_init : int
        Restarts of k-means.
    join : bool
        Whether to join a graph of more pieces than clusters by weak edges between its
        most similar rows. The method as published does not (False), and its graphs
        often fall apart: which pieces share a label is then left to chance.
    batch_size : int or None
        Rows pursued together; None for what suits the device.
    block_size : int or None
        Rows compared with a batch at a time; None for what suits the device.
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
    affinity_matrix_ : scipy.sparse.csr_array of shape (n_samples, n_samples)
    embedding_ : ndarray of shape (n_samples, n_eigenvectors)
    eigenvalues_ : ndarray of shape (n_eigenvectors,)
        Of the graph's normalised Laplacian.
    timings_ : dict of str to float
        Seconds by stage.
    n_features_in_ : int

    Examples
    --------
    >>> from selfexpress import SSCOMP, make_subspaces
    >>> data = make_subspaces(3, dimension=4, n_features=10, n_samples=40,
    ...                       random_state=0)
    >>> model = SSCOMP(n_clusters=3, n_nonzero=4, random_state=0).fit(data.X)
    >>> int(model.coefficients_.nnz) <= 4 * 120
    True
    """

    def __init__(
        self,
        n_clusters: int | str = 8,
        *,
        n_nonzero: int | str = "auto",
        tol: float = 1e-6,
        normalize: bool = True,
        affinity: str = "symmetric",
        n_neighbors: int = 3,
        n_eigenvectors: int | None = None,
        n_init: int = 20,
        join: bool = True,
        batch_size: int | None = None,
        block_size: int | None = None,
        device: str | torch.device = "auto",
        verbose: bool | int = False,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_nonzero = n_nonzero
        self.tol = tol
        self.normalize = normalize
        self.affinity = affinity
        self.n_neighbors = n_neighbors
        self.n_eigenvectors = n_eigenvectors
        self.n_init = n_init
        self.join = join
        self.batch_size = batch_size
        self.block_size = block_size
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    _if_all_zero = (
        "Lower tol, remove rows of zeros or, with normalize=False, rows far longer "
        "than the others."
    )

    def _scaled(self, source: RowSource) -> RowSource:
        require_flag("normalize", self.normalize, advice="Use True.")
        if self.normalize:
            return super()._scaled(source)
        return MappedSource(source, lambda rows: rows.to(torch.float64))

    def _express(
        self, rows: Tensor, *, seed: int, progress: Progress | None
    ) -> sparse.csr_array:
        if not self.normalize:
            # No coefficient depends on a factor of all rows; their squares stay finite.
            largest = rows.abs().max().clamp(min=torch.finfo(rows.dtype).tiny)
            rows = (rows / largest).to(self._dtype())
        config = PursuitConfig(
            n_nonzero=self._n_nonzero(rows.shape[1]),
            tol=self.tol,
            batch_size=self.batch_size,
            block_size=self.block_size,
        )
        return pursuit_coefficients(rows, config, progress=progress)

    def _n_nonzero(self, n_features: int) -> Any:
        if is_auto(self.n_nonzero):
            return max(1, min(_MOST_PURSUED, n_features // 2))
        return self.n_nonzero
