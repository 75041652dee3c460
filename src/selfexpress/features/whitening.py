"""Principal components, scaled or not, then rows of unit length.

Shapes: N samples, D features, K rows of a block, M components.
"""

from __future__ import annotations

import warnings
from os import PathLike
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils import Tags
from sklearn.utils.validation import check_array, check_is_fitted
from torch import Tensor

from selfexpress.errors import ConfigError, DataError, DegenerateWarning
from selfexpress.features.second_moments import leading_eigenvectors, second_moments
from selfexpress.features.whitening_file import read_components, write_components
from selfexpress.rows.prefetch import Prefetched
from selfexpress.rows.sources import (
    ArraySource,
    CheckedRows,
    MappedSource,
    RowSource,
    columns_of,
)
from selfexpress.rows.validation import validated

Rows = Tensor | NDArray[np.floating]

# Of double precision, in sums of many numbers.
_ROUNDING = 1e-14
# "auto" keeps at most so many components, and one for so many rows.
_MOST_COMPONENTS = 250
_ROWS_A_COMPONENT = 4


class Whitening(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Project rows on their principal components, level these, scale rows to length 1.

    Fitting walks the rows once in blocks and keeps one D x D matrix in double
    precision, so that the data may be larger than memory.

    Parameters
    ----------
    n_components : int or "auto", default="auto"
        Number of components kept, at most the number of features. "auto" keeps 250,
        or fewer where there are not so many features or not four times as many rows:
        weak components of few rows are noise, which whitening would make as large as
        the rest.
    center : bool, default=False
        Subtract the mean first. Subspaces pass through the origin: leave it unless the
        mean carries no information.
    whiten : bool, default=True
        Divide each component by its root mean square, so that all weigh the same.
    normalize : bool, default=True
        Scale each row to unit Euclidean length; rows of zeros stay zero.
    block_size : int, default=4096
        Rows handled at once. Memory grows with it; the result does not depend on it.

    Attributes
    ----------
    n_components_ : int
        M, the number of components kept.
    components_ : ndarray of shape (M, D), float64
        Orthonormal rows, strongest first, each with a positive largest entry.
    singular_values_ : ndarray of shape (M,)
        Singular values of the data, centred if ``center``.
    explained_ : ndarray of shape (M,)
        Share of the total sum of squares (variance, if ``center``) of each component.
    scale_ : ndarray of shape (M,)
        What components are divided by: their root mean square, or ones. 0 marks a
        component without energy, which is mapped to zero.
    mean_ : ndarray of shape (D,)
        Zeros unless ``center``.
    n_samples_seen_ : int
    n_features_in_ : int

    Notes
    -----
    Input is NumPy, torch (computed on its device) or, for ``fit`` and ``transform``, a
    `RowSource`. ``Whitening(500, whiten=False)`` are the features of the SENet paper.

    Examples
    --------
    >>> import numpy as np
    >>> from selfexpress.features import Whitening
    >>> rows = np.random.default_rng(0).normal(size=(100, 8)) * np.arange(1, 9)
    >>> white = Whitening(3).fit_transform(rows)
    >>> white.shape, bool(np.allclose(np.linalg.norm(white, axis=1), 1))
    ((100, 3), True)
    """

    def __init__(
        self,
        n_components: int | str = "auto",
        *,
        center: bool = False,
        whiten: bool = True,
        normalize: bool = True,
        block_size: int = 4096,
    ) -> None:
        self.n_components = n_components
        self.center = center
        self.whiten = whiten
        self.normalize = normalize
        self.block_size = block_size

    def fit(self, X: ArrayLike | Tensor | RowSource, y: object = None) -> Self:
        """Find the components of ``X``, of shape (N, D).

        Parameters
        ----------
        X : array, Tensor or RowSource of shape (N, D)
        y : ignored
        """
        source = _double_source(self._validated(X, reset=True))
        self._check_settings()
        moments = second_moments(source, self.block_size, center=self.center)
        self.n_components_ = self._choose_n_components(len(source))
        energies, components = leading_eigenvectors(moments.gram, self.n_components_)
        if isinstance(self.n_components, str):
            # No more than the rows fill.
            n_full = max(1, int((~self._is_empty(energies)).sum()))
            self.n_components_ = n_full
            energies, components = energies[:n_full], components[:n_full]
        total = float(moments.gram.trace())

        self.n_samples_seen_ = len(source)
        self.mean_ = moments.mean.cpu().numpy()
        self.components_ = components
        self.singular_values_ = np.sqrt(energies)
        self.explained_ = energies / total if total > 0 else np.zeros_like(energies)
        self.scale_ = np.ones_like(energies)
        if self.whiten:
            self.scale_ = self.singular_values_ / np.sqrt(len(source))
            self._warn_of_empty_components()
        self._n_features_out = self.n_components_
        return self

    def transform(self, X: ArrayLike | Tensor | RowSource) -> Rows:
        """Return the components of rows.

        Parameters
        ----------
        X : array, Tensor or RowSource of shape (N, D)

        Returns
        -------
        array or Tensor of shape (N, M)
            In single precision if ``X`` is. A Tensor if ``X`` is one or a RowSource.
        """
        check_is_fitted(self)
        rows = self._validated(X, reset=False)
        source = _double_source(rows)
        outputs: Tensor | None = None
        for block in source.blocks(self.block_size):
            mapped = self._map(block.rows.double())  # (K, M)
            if outputs is None:
                outputs = mapped.new_empty(
                    (len(source), mapped.shape[1]), dtype=_result_dtype(rows)
                )
            outputs[block.index] = mapped.to(outputs.dtype)
        if outputs is None:
            raise DataError("X must hold at least one row, got none. Check its source.")
        return outputs.numpy() if isinstance(rows, np.ndarray) else outputs

    def stream(self, source: RowSource) -> RowSource:
        """Return the components of a source's rows, computed whenever they are read.

        Parameters
        ----------
        source : RowSource of shape (N, D)
            May be larger than memory.

        Returns
        -------
        RowSource of shape (N, M), float32
        """
        check_is_fitted(self)
        self._check_columns(source, reset=False)
        return MappedSource(
            CheckedRows(source),
            lambda rows: self._map(rows.double()).float(),
            len(self.components_),
        )

    def inverse_transform(self, X: ArrayLike | Tensor) -> Rows:
        """Map components back to features.

        With all components and ``normalize=False`` this undoes ``transform``. Fewer
        components give the nearest row in their span. The unit length loses each row's
        length for good: what comes back is the row divided by the length that
        ``transform`` divided by (before the mean is added, if ``center``).

        Parameters
        ----------
        X : array or Tensor of shape (N, M)

        Returns
        -------
        array or Tensor of shape (N, D)
        """
        check_is_fitted(self)
        scaled = self.components_ * self.scale_[:, None]  # (M, D)
        shape = np.shape(X)
        if len(shape) == 2 and shape[1] != len(scaled):
            raise DataError(
                f"X must have the {len(scaled)} components of transform, got "
                f"{shape[1]}. Give what transform returned."
            )
        if isinstance(X, Tensor):
            _check_tensor(X)
            weights, mean = (
                torch.from_numpy(array).to(X.device) for array in (scaled, self.mean_)
            )
            return (X.double() @ weights + mean).to(_result_dtype(X))
        rows = check_array(X, dtype=[np.float64, np.float32])
        return np.asarray(rows @ scaled + self.mean_, dtype=rows.dtype)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the components to one safetensors file, to be used on other rows.

        Parameters
        ----------
        path : str or path-like
            Replaced only once the new file is complete.
        """
        write_components(Path(path), self)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read components that :meth:`save` wrote.

        Parameters
        ----------
        path : str or path-like

        Returns
        -------
        Whitening
            Fitted; transforms as the saved one did.

        Raises
        ------
        CheckpointError
            If the file is missing, damaged or holds something else.
        """
        settings, fitted = read_components(Path(path))
        loaded = cls(**settings)
        for name, value in fitted.items():
            setattr(loaded, name, value)
        return loaded

    def __sklearn_tags__(self) -> Tags:
        """Tell scikit-learn which precisions come out as they went in."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _validated(
        self, X: ArrayLike | Tensor | RowSource, *, reset: bool
    ) -> Tensor | RowSource | NDArray[np.floating]:
        if not isinstance(X, Tensor) and isinstance(X, RowSource):
            self._check_columns(X, reset=reset)
            return CheckedRows(X)
        if isinstance(X, Tensor):
            _check_tensor(X)
            self._check_n_features(X.shape[1], reset=reset)
            return X.detach()
        rows: NDArray[np.floating] = validated(
            self, X, dtype=[np.float64, np.float32], reset=reset
        )
        return rows

    def _check_columns(self, source: RowSource, *, reset: bool) -> None:
        """Check or note the number of a source's columns, and their names."""
        self._check_n_features(source.n_features, reset=reset)
        validated(self, columns_of(source), reset=reset, skip_check_array=True)

    def _check_n_features(self, n_features: int, *, reset: bool) -> None:
        if reset:
            self.n_features_in_ = n_features
            # Those of an earlier fit.
            self.__dict__.pop("feature_names_in_", None)
        elif n_features != self.n_features_in_:
            raise DataError(
                f"X must have the {self.n_features_in_} features seen by fit, "
                f"got {n_features}. Fit again, or give the same features."
            )

    def _choose_n_components(self, n_samples: int) -> int:
        if not isinstance(self.n_components, str):
            return self.n_components
        most = min(_MOST_COMPONENTS, n_samples // _ROWS_A_COMPONENT)
        return min(max(1, most), self.n_features_in_)

    def _check_settings(self) -> None:
        for name in ("n_components", "block_size"):
            value = getattr(self, name)
            if name == "n_components" and value == "auto":
                continue
            is_integer = isinstance(value, (int, np.integer))
            if not is_integer or isinstance(value, bool) or value < 1:
                raise ConfigError(
                    f"{name} must be a positive integer, got {value!r}. "
                    f"Leave it out for the default."
                )
        most = self.n_features_in_
        if not isinstance(self.n_components, str) and self.n_components > most:
            raise ConfigError(
                f"n_components must not exceed the {most} features of "
                f"the data, got {self.n_components}. Lower it."
            )

    def _is_empty(self, energies: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which components have no energy but for rounding."""
        rounding = self.n_features_in_ * np.finfo(np.float64).eps
        is_empty: NDArray[np.bool_] = energies <= rounding * energies[0]
        return is_empty

    def _warn_of_empty_components(self) -> None:
        """Mark components of no energy with the scale 0; they are mapped to zero."""
        is_empty = self._is_empty(self.singular_values_**2)
        if not is_empty.any():
            return
        self.scale_ = np.where(is_empty, 0.0, self.scale_)
        warnings.warn(
            f"n_components should not exceed the rank of the data, got "
            f"{self.n_components_} for rank {int((~is_empty).sum())}. The components "
            f"beyond it are zero; lower n_components.",
            DegenerateWarning,
            stacklevel=3,
        )

    def _map(self, rows: Tensor) -> Tensor:
        """Return (K, M) for rows (K, D), all in double precision."""
        mean = torch.from_numpy(self.mean_).to(rows.device)
        factors = np.zeros_like(self.scale_)
        np.divide(1.0, self.scale_, out=factors, where=self.scale_ > 0)
        weights = torch.from_numpy(self.components_ * factors[:, None])
        mapped = (rows - mean) @ weights.T.to(rows.device)
        if self.normalize:
            length = _lengths(mapped)
            size = torch.maximum(_lengths(rows), mean.norm())
            # A row without a part along the components is 0, not its rounding.
            is_rounding = length <= _ROUNDING * size * float(factors.max())
            mapped = torch.where(is_rounding, 0, mapped / length)
        return mapped


def _lengths(rows: Tensor) -> Tensor:
    """Return (K, 1) lengths of rows whose squares may overflow or vanish."""
    largest = rows.abs().amax(dim=1, keepdim=True)
    scaled = rows / torch.where(largest > 0, largest, 1)
    lengths: Tensor = largest * scaled.norm(dim=1, keepdim=True)
    return lengths


def _double_source(rows: Tensor | RowSource | NDArray[np.floating]) -> RowSource:
    if isinstance(rows, Tensor):
        return ArraySource(rows, dtype=torch.float64, device=rows.device)
    if isinstance(rows, np.ndarray):
        return ArraySource(rows, dtype=torch.float64)
    return Prefetched(rows)


def _result_dtype(rows: Tensor | RowSource | NDArray[np.floating]) -> torch.dtype:
    is_double = isinstance(rows, Tensor | np.ndarray) and (
        rows.dtype in (torch.float64, np.float64)
    )
    return torch.float64 if is_double else torch.float32


def _check_tensor(X: Tensor) -> None:
    if X.layout != torch.strided:
        raise DataError("X must be dense, got a sparse tensor. Use X.to_dense().")
    if X.ndim != 2 or len(X) == 0:
        raise DataError(
            f"X must be a non-empty table of rows, got shape {tuple(X.shape)}. "
            f"Reshape it to (samples, features)."
        )
    if X.is_complex() or not bool(X.isfinite().all()):
        raise DataError(
            "rows must be real and finite, got NaN, infinite or complex values. "
            "Replace or drop them."
        )
