"""What every self-expressive clusterer shares: input, graph, labels."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from os import PathLike
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, ClusterMixin
from torch import Tensor

from selfexpress.affinity.graph import build_affinity
from selfexpress.affinity.joining import join_components
from selfexpress.config import ClusterConfig
from selfexpress.errors import ConfigError, DataError
from selfexpress.estimators.graph_choice import GraphChoice
from selfexpress.ops.seeds import draw_seed
from selfexpress.rows.sources import (
    ArraySource,
    CheckedRows,
    RowSource,
    columns_of,
    is_exact_in_single,
    row_dtype,
)
from selfexpress.rows.validation import validated
from selfexpress.spectral import SpectralClusters, spectral_clusters

# What scikit-learn notes of the columns before anything is computed.
_COLUMNS = ("n_features_in_", "feature_names_in_")


class SelfExpressiveClusterer(ClusterMixin, BaseEstimator):
    """Base of the estimators that cluster rows by their sparse coefficients.

    A subclass computes ``coefficients_`` in ``fit`` and hands them to
    :meth:`_cluster`. Its constructor stores at least the settings of
    :class:`~selfexpress.config.ClusterConfig`, ``device`` and ``random_state``.
    """

    labels_: np.ndarray
    n_clusters_: int
    coefficients_: sparse.csr_array
    affinity_matrix_: sparse.csr_array
    embedding_: np.ndarray
    eigenvalues_: np.ndarray
    timings_: dict[str, float]

    @contextmanager
    def _unless_refused(self) -> Iterator[None]:
        """Leave the columns that were known as they were if a fit is refused."""
        own = self.__dict__
        known = {name: own[name] for name in _COLUMNS if name in own}
        try:
            yield
        except Exception:
            for name in _COLUMNS:
                own.pop(name, None)
            own.update(known)
            raise

    def _drop_earlier_fit(self) -> None:
        """Drop an earlier fit, so that one that fails leaves no part of it."""
        for name in [*vars(self)]:
            if name.endswith("_") and name not in _COLUMNS:
                delattr(self, name)

    def _source(self, X: Any, *, reset: bool, device: torch.device) -> RowSource:
        """Check ``X`` and make it a source whose rows arrive on ``device``.

        Raises
        ------
        ValueError
            If ``X`` is not a finite numeric matrix, or not as wide as the fitted one.
        """
        if isinstance(X, str | PathLike):
            raise DataError(
                f"X must be a matrix, got the path {str(X)!r}. Use "
                "selfexpress.open_rows to read a file."
            )
        if _is_mapped(X):
            # As a source: to check it whole would be to read it whole.
            X = ArraySource(X, dtype=row_dtype(X))
        if isinstance(X, RowSource):
            _require_rows(len(X), reset=reset)
            validated(self, columns_of(X), reset=reset, skip_check_array=True)
            return CheckedRows(X, device=device)
        if isinstance(X, Tensor):
            X = _check_tensor(X)
            if X.device.type != "cpu":
                _require_rows(len(X), reset=reset)
                validated(self, X, reset=reset, skip_check_array=True)
                return ArraySource(X, dtype=row_dtype(X), device=device)
            X = X.numpy()
        array = validated(
            self,
            X,
            reset=reset,
            dtype=_TYPES[::-1] if _is_narrow(X) else _TYPES,
            ensure_min_samples=2 if reset else 1,
        )
        return ArraySource(array, dtype=row_dtype(array), device=device)

    def _cluster_config(self, n_samples: int, **chosen: Any) -> ClusterConfig:
        """Gather and check the settings of clustering, with those chosen for "auto"."""
        names = [field.name for field in fields(ClusterConfig)]
        given = {name: getattr(self, name) for name in names}
        config = ClusterConfig(**given | chosen)
        if not isinstance(config.n_clusters, str) and config.n_clusters > n_samples:
            raise ConfigError(
                f"n_clusters must be at most the number of samples, n_samples="
                f"{n_samples}, got {config.n_clusters}. Lower n_clusters."
            )
        return config

    def _cluster(
        self,
        coefficients: sparse.csr_array,
        config: ClusterConfig,
        *,
        seed: int,
        device: torch.device,
        joining_rows: Tensor | None = None,
        choice: GraphChoice | None = None,
    ) -> None:
        """Turn coefficients into a graph, an embedding and labels.

        A graph in too many pieces is joined by ``joining_rows``, if there are any. With
        a ``choice`` the graph is built already.
        """
        self.coefficients_ = coefficients
        if choice is not None:
            self.affinity_matrix_ = choice.affinity
            if choice.clusters is not None:
                self._take(choice.clusters)
            else:
                self._find_clusters(config, seed=seed, device=device)
            return
        with self._timed("affinity"):
            self.affinity_matrix_ = build_affinity(
                coefficients,
                kind=config.affinity,
                n_neighbors=config.n_neighbors,
                device=device,
            )
            if joining_rows is not None:
                self.affinity_matrix_ = join_components(
                    self.affinity_matrix_,
                    joining_rows,
                    n_clusters=least_clusters(config.n_clusters),
                )
        self._find_clusters(config, seed=seed, device=device)

    def _find_clusters(
        self, config: ClusterConfig, *, seed: int, device: torch.device
    ) -> None:
        with self._timed("spectral"):
            clusters = spectral_clusters(
                self.affinity_matrix_,
                config.n_clusters,
                n_eigenvectors=config.n_eigenvectors,
                n_init=config.n_init,
                seed=seed,
                device=device,
            )
        self._take(clusters)

    def _take(self, clusters: SpectralClusters) -> None:
        self.embedding_ = clusters.embedding
        self.eigenvalues_ = clusters.eigenvalues
        self.labels_ = clusters.labels
        self.n_clusters_ = int(clusters.n_clusters)

    def _seed(self) -> int:
        return draw_seed(self.random_state)

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        """Add the seconds of a stage to ``timings_``."""
        start = time.perf_counter()
        yield
        spent = self.timings_.get(stage, 0.0)
        self.timings_[stage] = spent + time.perf_counter() - start


# What rows may be of; others become the first.
_TYPES = [np.float64, np.float32]


def _is_narrow(X: Any) -> bool:
    """Tell whether single precision holds an array or a table of numbers exactly."""
    dtypes = [X.dtype] if hasattr(X, "dtype") else list(getattr(X, "dtypes", ()))
    return bool(dtypes) and all(
        isinstance(dtype, np.dtype) and is_exact_in_single(dtype) for dtype in dtypes
    )


def _is_mapped(X: Any) -> bool:
    """Tell whether this is a matrix of numbers in a mapped file."""
    is_matrix = isinstance(X, np.memmap) and X.ndim == 2
    # Torch has no wider floats; scikit-learn makes them narrower.
    return is_matrix and X.dtype.kind in "biuf" and X.dtype.itemsize <= 8


def _check_tensor(X: Tensor) -> Tensor:
    """Refuse tensors that are no dense, finite, real matrix."""
    if X.layout != torch.strided:
        raise TypeError("X must be dense, got a sparse tensor. Use X.to_dense().")
    if X.ndim != 2 or X.is_complex() or 0 in X.shape:
        raise DataError(
            "X must be a real matrix of shape (n_samples, n_features), got "
            f"{tuple(X.shape)} of {X.dtype}. Reshape it, or take real numbers."
        )
    if not torch.isfinite(X).all():
        raise DataError("X must be finite, but contains NaN or infinity. Clean it.")
    X = X.detach().resolve_conj().resolve_neg()
    return X.float() if X.dtype == torch.bfloat16 else X


def _require_rows(n_rows: int, *, reset: bool) -> None:
    least = 2 if reset else 1
    if n_rows < least:
        raise DataError(
            f"X must have at least {least} rows, got n_samples={n_rows}. Give more."
        )


def least_clusters(n_clusters: int | str) -> int:
    """Return the number of clusters asked for; for "auto" the fewest there may be."""
    return 1 if isinstance(n_clusters, str) else int(n_clusters)
