"""SENet as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from selfexpress.affinity.assignment import References, cluster_weights
from selfexpress.affinity.coefficients import embed_keys, sparse_coefficients
from selfexpress.config import NetworkConfig, TrainConfig, require_count
from selfexpress.data.sources import ArraySource, RowSource, UnitRows
from selfexpress.errors import DegenerateError
from selfexpress.estimators.base import SelfExpressiveClusterer, resolve_device
from selfexpress.estimators.model_file import SavedModel, read_model, write_model
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.training.callbacks import Callback, ProgressBar
from selfexpress.training.choices import decide
from selfexpress.training.gamma import (
    SmallestGamma,
    require_large_enough,
    smallest_gamma,
)
from selfexpress.training.loop import train


class SENet(SelfExpressiveClusterer):
    """Subspace clustering by a learned self-expressive network.

    A query and a key tower are trained on a sample of the rows so that each row is a
    sparse combination of the others. The network then gives coefficients for all
    rows, these give a graph, and the graph's spectral clustering gives labels. New
    rows are named by the fitted ones, without clustering again.

    Rows are scaled to unit length first: only their direction counts.

    Parameters
    ----------
    n_clusters : int
    gamma : float
        Weight of the reconstruction against sparsity. Larger values use more and
        larger coefficients; raise it when rows stay without any.
    l1_ratio : float
        Share of the l1 norm in the elastic net, 0 to 1. Lower values connect the
        graph better, higher values keep subspaces apart better.
    hidden_sizes : tuple of int
        Hidden layers of each tower.
    n_embedding : int
        Dimension of queries and keys.
    n_train_samples : int or None
        Rows drawn at random to train on; None for all of them.
    max_iter : int
        Training steps.
    batch_size : int
        Rows expressed in a step.
    block_size : int
        Rows that express them at a time, where memory is bounded.
    learning_rate : float
    schedule : {"cosine", "constant"}
        Course of the learning rate.
    optimizer : {"adam", "muon"}
    algorithm : {"auto", "naive", "two_pass"}
        Gradient of a step: in one graph, in two passes of bounded memory, or
        whichever fits into the memory that is free.
    n_nonzero : int
        Coefficients kept of each row, the largest.
    affinity : {"nearest_neighbors", "symmetric"}
        Graph of the nearest rows in coefficient space, or ``|C| + |C|^T``.
    n_neighbors : int
        Rows joined to each by ``affinity="nearest_neighbors"``.
    n_eigenvectors : int or None
        Dimension of the spectral embedding; None for ``n_clusters``.
    n_init : int
        Restarts of k-means.
    n_references : int
        Most fitted rows kept to name new ones.
    precision : {"auto", "float32", "bfloat16"}
        Of the matrix products in training; "auto" is bfloat16 on a GPU and float32
        on a CPU.
    device : str or torch.device
        "auto" takes a GPU if there is one.
    callbacks : sequence of Callback, optional
        Told about every step of training.
    verbose : bool or int
        Whether to show a progress bar on stderr.
    random_state : int, RandomState or None
        Fix it for the same result twice.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
    coefficients_ : scipy.sparse.csr_array of shape (n_samples, n_samples)
        Row j expresses sample j.
    affinity_matrix_ : scipy.sparse.csr_array of shape (n_samples, n_samples)
    embedding_ : ndarray of shape (n_samples, n_eigenvectors)
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
    ...               max_iter=200, affinity="symmetric", random_state=0).fit(data.X)
    >>> model.labels_.shape
    (120,)
    >>> bool((model.predict(data.X) == model.labels_).mean() > 0.95)
    True
    """

    network_: SelfExpressiveNetwork
    references_: References
    history_: dict[str, NDArray[np.float64]]
    smallest_gamma_: SmallestGamma
    n_iter_: int

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        gamma: float = 200.0,
        l1_ratio: float = 0.9,
        hidden_sizes: Sequence[int] = (512, 512),
        n_embedding: int = 512,
        n_train_samples: int | None = 2000,
        max_iter: int = 1000,
        batch_size: int = 200,
        block_size: int = 8192,
        learning_rate: float = 1e-3,
        schedule: str = "cosine",
        optimizer: str = "adam",
        algorithm: str = "auto",
        n_nonzero: int = 100,
        affinity: str = "nearest_neighbors",
        n_neighbors: int = 3,
        n_eigenvectors: int | None = None,
        n_init: int = 20,
        n_references: int = 10_000,
        precision: str = "auto",
        device: str | torch.device = "auto",
        callbacks: Sequence[Callback] | None = None,
        verbose: bool | int = False,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.gamma = gamma
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
        self.algorithm = algorithm
        self.n_nonzero = n_nonzero
        self.affinity = affinity
        self.n_neighbors = n_neighbors
        self.n_eigenvectors = n_eigenvectors
        self.n_init = n_init
        self.n_references = n_references
        self.precision = precision
        self.device = device
        self.callbacks = callbacks
        self.verbose = verbose
        self.random_state = random_state

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
        self.timings_ = {}
        # A fit that fails must not leave a new network beside old references.
        if hasattr(self, "references_"):
            del self.references_
        device = resolve_device(self.device)
        source = UnitRows(self._source(X, reset=True, device=device))
        cluster_config = self._cluster_config(len(source))
        seed = self._seed()

        with self._timed("training"):
            self._train(source, seed=seed, device=device)
        with self._timed("coefficients"):
            keys = embed_keys(self.network_, source, block_size=self.block_size)
            coefficients = sparse_coefficients(
                self.network_,
                source,
                keys,
                n_nonzero=self.n_nonzero,
                exclude_self=True,
            )
        self._require_nonzero(coefficients)
        self._cluster(coefficients, cluster_config, seed=seed, device=device)
        with self._timed("references"):
            self.references_ = self._choose_references(source, keys, seed=seed)
        return self

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
        labels: NDArray[np.int64] = self.predict_proba(X).argmax(axis=1)
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return how much of each row's neighbourhood belongs to each cluster.

        Parameters
        ----------
        X : array-like, Tensor or RowSource of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_clusters)
            Rows sum to 1. Shares of a neighbourhood, not calibrated probabilities.
        """
        check_is_fitted(self, "references_")
        return cluster_weights(
            self.self_expression(X),
            self.references_,
            device=self._fitted_device(),
        )

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
        check_is_fitted(self, "references_")
        source = self._source(X, reset=False, device=self._fitted_device())
        return sparse_coefficients(
            self.network_,
            UnitRows(source),
            self.references_.keys,
            n_nonzero=self.n_nonzero,
            exclude_self=False,
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write what ``predict`` needs to one safetensors file.

        It holds weights, reference keys, coefficients and labels, ``labels_``, the
        history and the settings; no row of the data and nothing that runs on loading.

        Parameters
        ----------
        path : str or path-like
            Replaced only once the new file is complete.
        """
        check_is_fitted(self, "references_")
        write_model(_saved(self), Path(path))

    @classmethod
    def load(
        cls, path: str | PathLike[str], *, device: str | torch.device = "auto"
    ) -> Self:
        """Read a model that :meth:`save` wrote.

        Parameters
        ----------
        path : str or path-like
        device : str or torch.device
            Need not be the one it was trained on.

        Returns
        -------
        SENet
            Predicts as the saved one did.

        Raises
        ------
        CheckpointError
            If the file is missing, damaged or no model.
        """
        known = set(cls._get_param_names()).difference(_NOT_SAVED)
        saved = read_model(Path(path), resolve_device(device), known=known)
        model = cls(**saved.settings, device=device)
        model.network_ = saved.network
        model.references_ = saved.references
        model.labels_ = saved.labels
        model.history_ = saved.history
        model.n_iter_ = len(saved.history["objective"])
        model.n_features_in_ = saved.network.n_features
        if saved.feature_names is not None:
            model.feature_names_in_ = saved.feature_names
        return model

    def _train(self, source: RowSource, *, seed: int, device: torch.device) -> None:
        network_config = NetworkConfig(self.hidden_sizes, self.n_embedding)
        generator = torch.Generator().manual_seed(seed)
        sample = self._training_sample(source, generator, device)
        config = decide(self._train_config(), network_config, sample, device)
        self.smallest_gamma_ = smallest_gamma(
            sample, config.l1_ratio, block_size=config.block_size
        )
        require_large_enough(config.gamma, self.smallest_gamma_)
        self.network_ = SelfExpressiveNetwork(
            source.n_features, network_config, generator=generator
        ).to(device)
        callbacks = [
            *(self.callbacks or ()),
            *([ProgressBar()] if self.verbose else []),
        ]
        self.history_ = train(
            self.network_, sample, config, seed=seed, callbacks=callbacks
        )
        self.n_iter_ = len(self.history_["objective"])

    def _training_sample(
        self, source: RowSource, generator: torch.Generator, device: torch.device
    ) -> RowSource:
        """Draw the rows to train on and keep them on the device; stream them if all."""
        if self.n_train_samples is None:
            return source
        advice = "Use None for all rows."
        require_count("n_train_samples", self.n_train_samples, least=2, advice=advice)
        order = torch.randperm(len(source), generator=generator)
        index = order[: self.n_train_samples].sort().values
        return ArraySource(source.take(index), device=device)

    def _train_config(self) -> TrainConfig:
        """Gather and check the settings of training."""
        require_count("n_nonzero", self.n_nonzero, advice="Use for example 100.")
        require_count("n_references", self.n_references, advice="Use 10_000.")
        names = [
            field.name for field in fields(TrainConfig) if hasattr(self, field.name)
        ]
        return TrainConfig(**{name: getattr(self, name) for name in names})

    def _require_nonzero(self, coefficients: sparse.csr_array) -> None:
        if coefficients.nnz:
            return
        bound = self.smallest_gamma_
        raise DegenerateError(
            f"Some coefficient must not be zero, but with gamma={self.gamma:.4g} the "
            f"network learned that all are; the optimum has some above gamma="
            f"{bound.any_row:.4g} and some for every row above {bound.every_row:.4g}. "
            f"Raise gamma, for example to {4 * max(self.gamma, bound.every_row):.4g}."
        )

    def _choose_references(
        self, source: RowSource, keys: torch.Tensor, *, seed: int
    ) -> References:
        """Keep all fitted rows to name new ones, or a random part of them."""
        if len(source) <= self.n_references:
            return References(keys, self.coefficients_, self.labels_, self.n_clusters)
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(source), generator=generator)
        index = order[: self.n_references].sort().values
        kept = keys[index.to(keys.device)]
        coefficients = sparse_coefficients(
            self.network_,
            ArraySource(source.take(index), device=keys.device),
            kept,
            n_nonzero=self.n_nonzero,
            exclude_self=True,
        )
        labels = self.labels_[index.numpy()]
        return References(kept, coefficients, labels, self.n_clusters)

    def _fitted_device(self) -> torch.device:
        return self.references_.keys.device


# Settings that a saved model does not carry: they belong to the fit, not the model.
_NOT_SAVED = ("callbacks", "device", "random_state", "verbose")


def _saved(model: SENet) -> SavedModel:
    settings = {
        name: value
        for name, value in model.get_params(deep=False).items()
        if name not in _NOT_SAVED
    }
    # As fitted: the parameters may have been set to something else since.
    settings["n_clusters"] = model.references_.n_clusters
    settings["hidden_sizes"] = [int(n) for n in model.network_.config.hidden_sizes]
    settings["n_embedding"] = int(model.network_.config.n_embedding)
    return SavedModel(
        settings=settings,
        feature_names=getattr(model, "feature_names_in_", None),
        network=model.network_,
        references=model.references_,
        labels=model.labels_,
        history=model.history_,
    )
