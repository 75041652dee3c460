"""SENet as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selfexpress.affinity.assignment import References
from selfexpress.affinity.coefficients import embed_keys
from selfexpress.config import NetworkConfig
from selfexpress.estimators import streaming
from selfexpress.estimators.fitting import trained_network
from selfexpress.estimators.inductive import Expressed, InductiveClusterer, Plan
from selfexpress.estimators.settings import (
    chosen_candidates,
    chosen_references,
    chosen_settings,
    train_settings,
    warn_of_no_training,
)
from selfexpress.estimators.solver import require_solved
from selfexpress.rows.sources import ArraySource, RowSource
from selfexpress.solvers.problem import ElasticNetConfig
from selfexpress.training.callbacks import Callback, require_callbacks
from selfexpress.training.checkpoints import require_checkpoint
from selfexpress.training.choices import (
    choose_exact_gamma,
    choose_gamma,
    decide,
    is_auto,
)
from selfexpress.training.gamma import (
    require_large_enough,
    require_nonzero,
    smallest_gamma,
)
from selfexpress.training.step import RECORDED

# Violation of the optimality conditions that exact coefficients may leave.
_TOLERANCE = 1e-2
# Coefficients of the network that are kept of a row.
_N_KEPT = 30


class SENet(InductiveClusterer):
    """Subspace clustering by self-expression: solved, learned, or both.

    Each row is written as a sparse combination of others. Who needs whom gives a
    graph, and the graph's spectral clustering gives labels. New rows are expressed by
    the fitted ones and go to the cluster that expresses most of them, without
    clustering again.

    By default the coefficients are solved for, exactly, among the rows most like each:
    nothing is trained, and the result is that of :class:`EnSC`. With ``max_iter``
    given, a query and a key network are trained first, on a sample of the rows, and the
    rows of its largest coefficients are candidates, too. With ``refine=None`` the
    network alone gives the coefficients, as in the paper. :doc:`/accuracy` compares
    the three.

    Rows are scaled to unit length first: only their direction counts.

    Parameters
    ----------
    n_clusters : int or "auto"
        "auto" counts them in the graph, from 2 to 100: see :doc:`/how-it-works`.
    refine : {"auto", None}
        "auto" solves for the coefficients, among the rows most like each row and those
        that the network finds; among all rows where these are few. None takes the
        coefficients of the network as they are.
    gamma : float or "auto"
        Weight of the reconstruction against sparsity. Larger values use more and
        larger coefficients; raise it when rows stay without any. "auto" is 12,
        relative, or 6 if ``l1_ratio`` is below 0.5. A network trains with 100; with 30
        if training starts with like rows, or 10 if ``l1_ratio`` is below 0.5 then, too.
    gamma_scale : {"absolute", "relative"}
        ``"relative"`` takes ``gamma`` times the value at which a typical row's
        coefficients start to be non-zero, which means the same for all data.
    l1_ratio : float or "auto"
        Share of the l1 norm in the elastic net, 0 to 1. Lower values connect the
        graph better, higher values keep subspaces apart better. "auto" is 0.9, and
        0.3 for two or three clusters of fewer than 2,000 rows.
    hidden_sizes : tuple of int or "auto"
        Hidden layers of each tower. "auto", here and in the next four, is what suits
        the device: more on a GPU than on a CPU.
    n_embedding : int or "auto"
        Dimension of queries and keys.
    n_train_samples : int, "auto" or None
        Rows drawn at random to train on; None for all of them.
    max_iter : int or "auto"
        Training steps; the most of them if ``schedule="adaptive"``. "auto" is none if
        coefficients are solved for, else 1,000 on a CPU and 3,000 on a GPU.
    batch_size : int or "auto"
        Rows expressed in a step.
    block_size : int
        Rows that express them at a time, where memory is bounded.
    learning_rate : float or "auto"
        "auto" is 1e-3, and 3e-4 for layers of 1024 units or more.
    schedule : {"adaptive", "cosine", "constant"}
        Of the learning rate: falling to 0 once the objective stops falling, which then
        ends the training (:doc:`/how-it-works`), over all steps, or never.
    optimizer : {"adam", "muon"}
    start : {"auto", "alike", "random"}
        Of training: each row expressed by those most like it, or independent towers
        as in the paper, which take more steps. "auto" is "alike" for fewer than
        2,000 training rows that fill 2.5 dimensions or more.
    algorithm : {"auto", "naive", "two_pass"}
        Gradient of a step: in one graph, in two passes of bounded memory, or
        whichever fits into the memory that is free.
    n_nonzero : int or "auto"
        Coefficients kept of each row, the largest. "auto" is all that are solved for,
        and 30 of a network.
    affinity : {"auto", "symmetric", "squared_cosines", "weighted_neighbors", \
"nearest_neighbors", "combined"}
        ``|C| + |C|^T``; the squared cosine of every two rows of C; a graph of the
        nearest rows in coefficient space, with their cosine or with 1 for weight; or a
        mean of the first and a graph of rows expressed alike. "auto" is the second for
        two or three clusters of fewer than 2,000 rows, else the last, which similar
        rows join where they hold the clusters together better than the coefficients
        do (:doc:`/how-it-works`); of a network's own coefficients the first.
    n_neighbors : int
        Rows joined to each by an affinity of neighbours.
    n_eigenvectors : int, "auto" or None
        Dimension of the spectral embedding that k-means finds clusters in; None for
        ``n_clusters``. "auto" does the same for two or three, as a rule, and where the
        eigenvalues show a clear gap; else it finds more pieces than clusters and
        merges them where that loses the least information about a walk on the graph,
        which prefers clusters of like size.
    n_init : int
        Restarts of k-means; a fifth of them for the pieces of "auto".
    n_references : int or "auto"
        Rows of the graph, where it is built of a sample; most fitted rows that a
        network keeps to assign new ones. "auto" is 20,000 where coefficients are
        solved for, else 10,000.
    n_cluster_samples : int, "auto" or None
        Rows drawn at random to build the graph of; all others are assigned by them, as
        new rows are, so that time grows linearly with the rows. None for all rows.
        "auto" takes all of up to 20,000 rows, 80,000 if a network alone finds the
        coefficients and memory suffices, else ``n_references``.
    center : bool or "auto"
        Whether the mean of the rows is subtracted before they are scaled. "auto" does
        so where all rows point nearly the same way, as spectra do.
    precision : {"auto", "float32", "tf32", "bfloat16"}
        Of the matrix products in training; "auto" is bfloat16 on a GPU, else float32.
    device : str or torch.device
        "auto" takes a GPU if there is one.
    checkpoint : str, path-like or None
        Folder for checkpoints of the training, one at a time for each fit. A fit that
        was interrupted goes on from there when it is run again with the same data,
        settings and ``random_state``, and ends as if nothing had happened.
    callbacks : sequence of Callback, optional
        Called at every step of training.
    verbose : bool or int
        Whether to show a progress bar on stderr.
    random_state : int, RandomState or None
        Fix it for the same result twice.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Of all rows.
    n_clusters_ : int
        As asked for, or as counted.
    sample_indices_ : ndarray of shape (n_clustered,)
        Rows that the graph was built of, in order; all of them unless
        ``n_cluster_samples`` says less. The next three attributes are theirs.
    coefficients_ : scipy.sparse.csr_array of shape (n_clustered, n_clustered)
        Row j expresses row ``sample_indices_[j]``.
    affinity_matrix_ : scipy.sparse.csr_array of shape (n_clustered, n_clustered)
    embedding_ : ndarray of shape (n_clustered, n_eigenvectors)
        Twice ``n_clusters_`` of them where "auto" merged pieces.
    eigenvalues_ : ndarray of shape (n_eigenvectors,)
        Of the graph's normalised Laplacian.
    network_ : SelfExpressiveNetwork or None
        None if nothing was trained.
    center_ : ndarray of shape (n_features,) or None
        What was subtracted from the rows.
    references_ : References
        What :meth:`predict` needs of the fitted rows.
    history_ : dict of str to ndarray
        ``objective``, ``reconstruction``, ``penalty``, ``learning_rate`` and
        ``threshold`` by step.
    timings_ : dict of str to float
        Seconds by stage.
    settings_ : dict of str to object
        What "auto" became in this fit; ``certificate``, how near the coefficients are
        to the optimum (:doc:`/how-it-works`); ``fall_start``, the steps before the
        learning rate fell, if ``schedule="adaptive"``. A saved model keeps part of it.
    smallest_gamma_ : SmallestGamma
        The gammas at which coefficients start to be non-zero on this data.
    n_iter_ : int
        Training steps done; without a training, most rounds that the coefficients of
        any row took.
    n_features_in_ : int

    Examples
    --------
    >>> from selfexpress import SENet, make_subspaces
    >>> data = make_subspaces(3, dimension=2, n_features=10, n_samples=40,
    ...                       random_state=0)
    >>> model = SENet(n_clusters=3, random_state=0).fit(data.X)
    >>> model.labels_.shape
    (120,)
    >>> bool((model.predict(data.X) == model.labels_).mean() > 0.95)
    True
    """

    history_: dict[str, NDArray[np.float64]]
    n_iter_: int

    def __init__(
        self,
        n_clusters: int | str = 8,
        *,
        refine: str | None = "auto",
        gamma: float | str = "auto",
        gamma_scale: str = "absolute",
        l1_ratio: float | str = "auto",
        hidden_sizes: Sequence[int] | str = "auto",
        n_embedding: int | str = "auto",
        n_train_samples: int | str | None = "auto",
        max_iter: int | str = "auto",
        batch_size: int | str = "auto",
        block_size: int = 16_384,
        learning_rate: float | str = "auto",
        schedule: str = "adaptive",
        optimizer: str = "adam",
        start: str = "auto",
        algorithm: str = "auto",
        n_nonzero: int | str = "auto",
        affinity: str = "auto",
        n_neighbors: int = 10,
        n_eigenvectors: int | str | None = "auto",
        n_init: int = 20,
        n_references: int | str = "auto",
        n_cluster_samples: int | str | None = "auto",
        center: bool | str = "auto",
        precision: str = "auto",
        device: str | torch.device = "auto",
        checkpoint: str | PathLike[str] | None = None,
        callbacks: Sequence[Callback] | None = None,
        verbose: bool | int = False,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.refine = refine
        self.gamma = gamma
        self.gamma_scale = gamma_scale
        self.l1_ratio = l1_ratio
        self.hidden_sizes = hidden_sizes
        self.n_embedding = n_embedding
        self.n_train_samples = n_train_samples
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.block_size = block_size
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.optimizer = optimizer
        self.start = start
        self.algorithm = algorithm
        self.n_nonzero = n_nonzero
        self.affinity = affinity
        self.n_neighbors = n_neighbors
        self.n_eigenvectors = n_eigenvectors
        self.n_init = n_init
        self.n_references = n_references
        self.n_cluster_samples = n_cluster_samples
        self.center = center
        self.precision = precision
        self.device = device
        self.checkpoint = checkpoint
        self.callbacks = callbacks
        self.verbose = verbose
        self.random_state = random_state

    def _plan(self, source: RowSource, device: torch.device) -> Plan:
        settings = chosen_settings(self, len(source), device)
        cluster = self._cluster_config(len(source), affinity=settings["affinity"])
        train_settings(self, settings)
        require_callbacks(self.callbacks)
        require_checkpoint(self.checkpoint, self.random_state)
        rows = self._planned_rows(source, device, dtype=torch.float32)
        warn_of_no_training(self)
        return Plan(**rows, cluster=cluster, settings=settings)

    def _expressed(self, plan: Plan) -> Expressed:
        source = streaming.shared(plan.whole)
        self.network_ = None
        self.history_ = {name: np.empty(0) for name in RECORDED}
        if plan.settings["max_iter"]:
            with self._timed("training"):
                self._train(source, plan)
        if self.refine is None:
            return self._learned(source, plan)
        with self._timed("coefficients"):
            rows = self._graph_rows(plan)
            self._decide_gamma(rows)
            keys = None
            if self.network_ is not None:
                graph = ArraySource(rows, device=plan.device)
                keys = embed_keys(self.network_, graph, block_size=self.block_size)
            n_similar = chosen_candidates("auto", *rows.shape)
            expression = self._exact(rows, n_similar, keys=keys)
        require_solved(expression.coefficients)
        if self.network_ is None:
            self.n_iter_ = int(expression.n_iter.max())
        return Expressed(expression.coefficients, rows, keys)

    def _learned(self, source: RowSource, plan: Plan) -> Expressed:
        """Return the network's own coefficients, as in the paper."""
        with self._timed("coefficients"):
            clustered = self._learned_rows(source, plan)
            keys, coefficients = streaming.express(
                self.network_,
                clustered,
                n_nonzero=self._kept(),
                block_size=self.block_size,
            )
        gamma = self.settings_["gamma"]
        require_nonzero(coefficients.nnz, gamma, self.smallest_gamma_)
        return Expressed(coefficients, keys=keys)

    def _learned_rows(self, source: RowSource, plan: Plan) -> RowSource:
        if not plan.is_sample:
            return source
        rows = ArraySource(source.take(plan.index), device=plan.device)
        return streaming.shared(rows)

    def _chosen_references(self, expressed: Expressed, plan: Plan) -> References:
        if expressed.rows is not None:
            return super()._chosen_references(expressed, plan)
        assert expressed.keys is not None
        return streaming.choose_references(
            self.network_,
            self._learned_rows(streaming.shared(plan.whole), plan),
            expressed.keys,
            labels=self.labels_,
            n_clusters=self.n_clusters_,
            n_references=(
                len(plan.index) if plan.is_sample else chosen_references(self)
            ),
            seed=plan.seed,
        )

    def _elastic_net(self) -> ElasticNetConfig:
        gamma, l1_ratio = (self.settings_[name] for name in ("gamma", "l1_ratio"))
        kept = None if is_auto(self.n_nonzero) else self._kept()
        return ElasticNetConfig(gamma, l1_ratio, tol=_TOLERANCE, n_nonzero=kept)

    def _kept(self) -> int:
        return _N_KEPT if is_auto(self.n_nonzero) else int(self.n_nonzero)

    def _decide_gamma(self, rows: Tensor) -> None:
        """Choose the gamma of exact coefficients for the rows of the graph."""
        chosen = self.settings_
        source = ArraySource(rows, device=rows.device)
        self.smallest_gamma_ = smallest_gamma(
            source, chosen["l1_ratio"], block_size=self.block_size
        )
        if self.network_ is not None:
            chosen["training_gamma"] = chosen["gamma"]
        chosen["gamma"] = choose_exact_gamma(
            self.gamma, self.gamma_scale, self.smallest_gamma_, chosen["l1_ratio"]
        )
        require_large_enough(chosen["gamma"], self.smallest_gamma_)

    def _train(self, source: RowSource, plan: Plan) -> None:
        """Train the network on a sample of the rows."""
        chosen, device = self.settings_, plan.device
        config = train_settings(self, chosen)
        network_config = NetworkConfig(chosen["hidden_sizes"], chosen["n_embedding"])
        generator = torch.Generator().manual_seed(plan.seed)
        sample = streaming.training_sample(
            source, chosen["n_train_samples"], generator=generator, device=device
        )
        config = decide(config, network_config, sample, device)
        self.smallest_gamma_ = smallest_gamma(
            sample, config.l1_ratio, block_size=config.block_size
        )
        gamma = choose_gamma(self.gamma, self.gamma_scale, self.smallest_gamma_, config)
        config = replace(config, gamma=gamma)
        require_large_enough(config.gamma, self.smallest_gamma_)
        for name in ("gamma", "learning_rate", "algorithm", "precision", "start"):
            chosen[name] = getattr(config, name)
        self.network_, self.history_ = trained_network(
            self,
            sample,
            network_config,
            config,
            generator=generator,
            seed=plan.seed,
            device=device,
        )
        self.n_iter_ = len(self.history_["objective"])
