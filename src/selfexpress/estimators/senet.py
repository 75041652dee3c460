"""SENet as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from selfexpress import distributed
from selfexpress.affinity.assignment import References
from selfexpress.affinity.coefficients import sparse_coefficients
from selfexpress.config import NetworkConfig, TrainConfig
from selfexpress.estimators import streaming
from selfexpress.estimators.base import SelfExpressiveClusterer
from selfexpress.estimators.fitting import trained_network
from selfexpress.estimators.html_summary import ShownInNotebooks
from selfexpress.estimators.persistence import SavedToFile
from selfexpress.estimators.settings import chosen_settings, graph_rows, train_settings
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.ops.devices import resolve_device
from selfexpress.ops.precision import in_own_arithmetic, own_arithmetic
from selfexpress.rows.sources import ArraySource, RowSource, UnitRows
from selfexpress.training.callbacks import Callback
from selfexpress.training.choices import choose_gamma, decide
from selfexpress.training.gamma import (
    SmallestGamma,
    require_large_enough,
    require_nonzero,
    smallest_gamma,
)


class SENet(SavedToFile, ShownInNotebooks, SelfExpressiveClusterer):
    """Subspace clustering by a learned self-expressive network.

    A query and a key tower are trained on a sample of the rows so that each row is a
    sparse combination of the others. The network then gives coefficients for all
    rows, these give a graph, and the graph's spectral clustering gives labels. New
    rows are named by the fitted ones, without clustering again.

    Rows are scaled to unit length first: only their direction counts.

    Parameters
    ----------
    n_clusters : int or "auto"
        "auto" counts them in the graph, from 2 to 100: see :doc:`/how-it-works`.
    gamma : float or "auto"
        Weight of the reconstruction against sparsity. Larger values use more and
        larger coefficients; raise it when rows stay without any. "auto" is 100,
        relative; 30 if training starts with like rows, or 10 if ``l1_ratio`` is below
        0.5 then, too.
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
        Training steps; the most of them if ``schedule="adaptive"``.
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
    n_nonzero : int
        Coefficients kept of each row, the largest.
    affinity : {"auto", "symmetric", "squared_cosines", "weighted_neighbors", \
"nearest_neighbors"}
        ``|C| + |C|^T``; the squared cosine of every two rows of C; or a graph of the
        nearest rows in coefficient space, with their cosine or with 1 for weight.
        "auto" is the second for two or three clusters of fewer than 2,000 rows, else
        the first.
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
    n_references : int
        Most fitted rows kept to name new ones; of a graph of a sample all are kept.
    n_cluster_samples : int, "auto" or None
        Rows drawn at random to build the graph of; all others are named by them, as
        new rows are, so that time grows linearly with the rows. None for all rows.
        "auto" takes all of up to 80,000 rows if memory suffices, else
        ``n_references``.
    search : {"all_pairs", "index"}
        How the graph's coefficients are found: exactly, or most of them by an index
        of the keys (needs ``selfexpress[faiss]``), for ``n_cluster_samples=None`` and
        very many rows.
    precision : {"auto", "float32", "tf32", "bfloat16"}
        Of the matrix products in training; "auto" is bfloat16 on a GPU, else float32.
    device : str or torch.device
        "auto" takes a GPU if there is one.
    checkpoint : str, path-like or None
        Folder for checkpoints of the training, one at a time for each fit. A fit that
        was interrupted goes on from there when it is run again with the same data,
        settings and ``random_state``, and ends as if nothing had happened.
    callbacks : sequence of Callback, optional
        Told about every step of training.
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
    network_ : SelfExpressiveNetwork
    references_ : References
        What :meth:`predict` needs of the fitted rows.
    history_ : dict of str to ndarray
        ``objective``, ``reconstruction``, ``penalty``, ``learning_rate`` and
        ``threshold`` by step.
    timings_ : dict of str to float
        Seconds by stage.
    settings_ : dict of str to object
        What "auto" became in this fit; ``fall_start``, the steps before the learning
        rate fell, if ``schedule="adaptive"``. A saved model keeps part of it.
    smallest_gamma_ : SmallestGamma
        The gammas at which coefficients start to be non-zero on this data.
    n_iter_ : int
        Training steps done.
    n_features_in_ : int

    Examples
    --------
    >>> from selfexpress import SENet, make_subspaces
    >>> data = make_subspaces(3, dimension=2, n_features=10, n_samples=40,
    ...                       random_state=0)
    >>> model = SENet(n_clusters=3, hidden_sizes=(64,), n_embedding=64,
    ...               max_iter=200, random_state=0).fit(data.X)
    >>> model.labels_.shape
    (120,)
    >>> bool((model.predict(data.X) == model.labels_).mean() > 0.95)
    True
    """

    network_: SelfExpressiveNetwork
    references_: References
    history_: dict[str, NDArray[np.float64]]
    settings_: dict[str, Any]
    smallest_gamma_: SmallestGamma
    n_iter_: int
    sample_indices_: NDArray[np.int64]

    def __init__(
        self,
        n_clusters: int | str = 8,
        *,
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
        n_nonzero: int = 30,
        affinity: str = "auto",
        n_neighbors: int = 10,
        n_eigenvectors: int | str | None = "auto",
        n_init: int = 20,
        n_references: int = 10_000,
        n_cluster_samples: int | str | None = "auto",
        search: str = "all_pairs",
        precision: str = "auto",
        device: str | torch.device = "auto",
        checkpoint: str | PathLike[str] | None = None,
        callbacks: Sequence[Callback] | None = None,
        verbose: bool | int = False,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
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
        self.search = search
        self.precision = precision
        self.device = device
        self.checkpoint = checkpoint
        self.callbacks = callbacks
        self.verbose = verbose
        self.random_state = random_state

    @own_arithmetic()
    def fit(self, X: Any, y: None = None) -> Self:
        """Train the network on rows of ``X`` and cluster all of them.

        Parameters
        ----------
        X : array-like, Tensor or RowSource of shape (n_samples, n_features)
            NumPy (also memory-mapped), torch on any device, pandas, or a source.
        y : None
            Ignored.

        Returns
        -------
        SENet

        Raises
        ------
        ValueError
            If ``X`` or a setting cannot be used.
        DegenerateError
            If every coefficient is zero, which names the gamma that is needed.
        """
        device = resolve_device(self.device)
        with self._unless_refused():
            whole = UnitRows(self._source(X, reset=True, device=device))
            settings = chosen_settings(self, len(whole), device)
            config = self._cluster_config(len(whole), affinity=settings["affinity"])
            train_config = train_settings(self, settings)
            streaming.check_search(self.search)
        self._forget()
        self.timings_, self.settings_ = {}, settings
        # Many processes must draw the same rows.
        seed = int(distributed.from_main(torch.tensor(self._seed())))
        source = streaming.shared(whole)
        index = graph_rows(self, len(whole), seed=seed)
        is_sample = len(index) < len(whole)

        with self._timed("training"):
            self._train(source, train_config, seed=seed, device=device)
        with self._timed("coefficients"):
            clustered = source
            if is_sample:
                rows = ArraySource(source.take(index), device=device)
                clustered = streaming.shared(rows)
            keys, coefficients = streaming.express(
                self.network_,
                clustered,
                n_nonzero=self.n_nonzero,
                block_size=self.block_size,
                search=self.search,
                seed=seed,
            )
        gamma = self.settings_["gamma"]
        require_nonzero(coefficients.nnz, gamma, self.smallest_gamma_)
        self._cluster(coefficients, config, seed=seed, device=device)
        self.labels_ = distributed.from_main(torch.from_numpy(self.labels_)).numpy()
        self.n_clusters_ = int(distributed.from_main(torch.tensor(self.n_clusters_)))
        self.settings_["n_clusters"] = self.n_clusters_
        self.settings_["n_eigenvectors"] = len(self.eigenvalues_)
        self.settings_["n_cluster_samples"] = len(index)
        self.sample_indices_ = index.numpy()
        with self._timed("references"):
            self.references_ = streaming.choose_references(
                self.network_,
                clustered,
                keys,
                labels=self.labels_,
                n_clusters=self.n_clusters_,
                n_references=len(clustered) if is_sample else self.n_references,
                seed=seed,
            )
        if is_sample:
            with self._timed("prediction"):
                labels = self._named(whole)
                labels[self.sample_indices_] = self.labels_
                self.labels_ = labels
        return self

    @own_arithmetic()
    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the cluster of each row, seen in ``fit`` or not.

        Parameters
        ----------
        X : array-like, Tensor or RowSource of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
            Numbered as in ``labels_``.
        """
        return self._named(self._new_rows(X))

    def predict_blocks(self, X: Any) -> Iterator[NDArray[np.int64]]:
        """Yield the clusters of rows as they are found, some thousand at a time.

        Parameters
        ----------
        X : array-like, Tensor or RowSource of shape (n_samples, n_features)
            A source may be larger than memory.

        Yields
        ------
        ndarray of shape (rows of a block,)
            In the order of the rows.
        """
        for weights in in_own_arithmetic(self._weights(self._new_rows(X))):
            yield weights.argmax(axis=1)

    @own_arithmetic()
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return how much of each row is expressed by each cluster.

        Parameters
        ----------
        X : array-like, Tensor or RowSource of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_clusters)
            Rows sum to 1. Shares of coefficients, not calibrated probabilities.
        """
        return np.concatenate(list(self._weights(self._new_rows(X))))

    @own_arithmetic()
    def self_expression(self, X: Any) -> sparse.csr_array:
        """Return the coefficients of each row on the model's reference rows.

        Parameters
        ----------
        X : array-like, Tensor or RowSource of shape (n_samples, n_features)

        Returns
        -------
        scipy.sparse.csr_array of shape (n_samples, n_references)
            At most ``n_nonzero`` entries a row.
        """
        source = self._new_rows(X)
        return sparse_coefficients(
            self.network_,
            source,
            self.references_.keys,
            n_nonzero=self.n_nonzero,
            exclude_self=False,
        )

    def _train(
        self,
        source: RowSource,
        config: TrainConfig,
        *,
        seed: int,
        device: torch.device,
    ) -> None:
        chosen = self.settings_
        network_config = NetworkConfig(chosen["hidden_sizes"], chosen["n_embedding"])
        generator = torch.Generator().manual_seed(seed)
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
            seed=seed,
            device=device,
        )
        self.n_iter_ = len(self.history_["objective"])

    def _new_rows(self, X: Any) -> RowSource:
        check_is_fitted(self, "references_")
        device = self.references_.keys.device
        return UnitRows(self._source(X, reset=False, device=device))

    def _weights(self, source: RowSource) -> Iterator[NDArray[np.float64]]:
        return streaming.weights_of(
            self.network_, self.references_, source, n_nonzero=self.n_nonzero
        )

    def _named(self, source: RowSource) -> NDArray[np.int64]:
        return streaming.labels_of(
            self.network_, self.references_, source, n_nonzero=self.n_nonzero
        )
