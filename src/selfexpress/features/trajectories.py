"""Trajectories of tracked points as rows whose motions lie in subspaces apart.

Under an affine camera the trajectories of one rigid motion fill an affine subspace of
at most three dimensions: a linear one of four, once a constant is appended. Motions
differ by components that are a hundredth of where points are in the image. Levelled,
these weigh as much; and subspaces that are independent, with the constant, become
orthogonal.

Shapes: N trajectories, D coordinates, M components.
"""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from selfexpress.config import require_positive
from selfexpress.rows.validation import validated

# A component so many times weaker than noise would enter with a hundredth of the
# weight of the others.
_WEAKEST = 1e-2


class Trajectories(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Append a constant, level the components above noise, scale rows to length 1.

    Parameters
    ----------
    noise : float, default=2e-3
        Strength of the noise of tracking, as a share of the strongest component. A
        component of strength s is divided by the root of ``s**2 + noise**2``:
        stronger ones come out level, weaker ones stay weak. The strongest is the
        constant; half a pixel in an image of 640 is a few times 1e-4 of it.

    Attributes
    ----------
    mean_ : ndarray of shape (D,)
    constant_ : float
        Appended to rows without their mean: their root mean square length.
    components_ : ndarray of shape (M, D + 1), float64
        Orthonormal rows, strongest first, each with a positive largest entry.
    singular_values_ : ndarray of shape (M,)
    scale_ : ndarray of shape (M,)
        What components are divided by.
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from selfexpress.features import Trajectories
    >>> points = np.random.default_rng(0).normal(size=(50, 2))
    >>> shift = np.linspace(0, 1, 8)
    >>> tracks = np.concatenate([points + step for step in shift], axis=1)
    >>> rows = Trajectories().fit_transform(tracks)
    >>> rows.shape
    (50, 3)
    """

    def __init__(self, *, noise: float = 2e-3) -> None:
        self.noise = noise

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Find the components of trajectories.

        Parameters
        ----------
        X : array of shape (N, D)
            All coordinates of a point in one row, in any order.
        y : ignored
        """
        require_positive("noise", self.noise, advice="Use for example 2e-3.")
        rows = self._validated(X, reset=True)
        self.mean_ = rows.mean(axis=0, dtype=np.float64)
        centred = rows - self.mean_
        # In units of the largest, whose squares neither overflow nor vanish. Any
        # constant will do for trajectories that are all the same.
        unit = float(np.abs(centred).max()) or 1.0
        lengths = np.linalg.norm(centred / unit, axis=1)
        self.constant_ = unit * (float(np.sqrt(np.mean(lengths**2))) or 1.0)
        extended = self._extended(rows)
        _, strengths, components = np.linalg.svd(extended, full_matrices=False)
        weakest = _WEAKEST * min(self.noise, 1.0) * strengths[0]
        n_kept = max(1, int((strengths > weakest).sum()))
        self.singular_values_ = strengths[:n_kept]
        # A singular vector has no sign of its own: here the largest entry is positive.
        largest = np.abs(components).argmax(axis=1)
        signs = np.sign(components[np.arange(len(components)), largest])
        self.components_ = (components * signs[:, None])[:n_kept]
        levelled = np.hypot(self.singular_values_, self.noise * strengths[0])
        self.scale_ = levelled / np.sqrt(len(rows))
        self._n_features_out = n_kept
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.floating]:
        """Return the levelled components of trajectories.

        Parameters
        ----------
        X : array of shape (N, D)

        Returns
        -------
        ndarray of shape (N, M)
            Unit rows, in single precision if ``X`` is.
        """
        check_is_fitted(self)
        rows = self._validated(X, reset=False)
        mapped = self._extended(rows) @ (self.components_ / self.scale_[:, None]).T
        mapped /= np.linalg.norm(mapped, axis=1, keepdims=True)
        return np.asarray(mapped, dtype=rows.dtype)

    def __sklearn_tags__(self) -> Tags:
        """Tell scikit-learn which precisions come out as they went in."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _validated(self, X: ArrayLike, *, reset: bool) -> NDArray[np.floating]:
        if isinstance(X, Tensor):
            X = X.detach()
        rows: NDArray[np.floating] = validated(
            self, X, dtype=[np.float64, np.float32], reset=reset
        )
        return rows

    def _extended(self, rows: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return rows without the mean and with the constant, (N, D + 1)."""
        constant = np.full((len(rows), 1), self.constant_)
        return np.concatenate([rows - self.mean_, constant], axis=1)
