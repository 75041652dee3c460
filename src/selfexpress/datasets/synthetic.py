"""Points on random linear subspaces, with labels that are known by construction.

Shapes: N points, D coordinates, d the dimension of a subspace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from selfexpress.errors import ConfigError


@dataclass(frozen=True)
class Subspaces:
    """Points drawn from a union of subspaces.

    Attributes
    ----------
    X : ndarray of shape (N, D), float64
        Points of unit norm, subspace by subspace, outliers last.
    labels : ndarray of shape (N,), int64
        Number of the subspace of each point, from 0; -1 for outliers.
    bases : tuple of ndarrays of shape (d, D)
        Orthonormal rows that span each subspace.
    """

    X: NDArray[np.float64]
    labels: NDArray[np.int64]
    bases: tuple[NDArray[np.float64], ...]


def make_subspaces(
    n_subspaces: int = 5,
    *,
    dimension: int | Sequence[int] = 6,
    n_features: int = 15,
    n_samples: int | Sequence[int] = 200,
    noise: float = 0.0,
    n_outliers: int = 0,
    bases: Sequence[NDArray[np.float64]] | None = None,
    random_state: int | np.random.Generator | None = None,
) -> Subspaces:
    """Draw points uniformly from the unit spheres of random subspaces.

    The defaults are the first synthetic experiment of the SENet paper: each subspace
    is uniform among those of its dimension, each point uniform on its sphere.

    Parameters
    ----------
    n_subspaces : int
        Number of subspaces.
    dimension : int or sequence of int
        Dimension of all subspaces, or of each.
    n_features : int
        Dimension of the space around them. Their dimensions may add up to more.
    n_samples : int or sequence of int
        Points of every subspace, or of each: unequal numbers make classes unbalanced.
    noise : float
        Root mean square length of the Gaussian vector added to each point, whose own
        length is 1. The sum is scaled back to unit norm.
    n_outliers : int
        Points drawn uniformly from the whole unit sphere, labelled -1.
    bases : sequence of arrays of shape (d, n_features), optional
        Subspaces to draw from, such as the ``bases`` of an earlier result, in place of
        new ones; ``n_subspaces``, ``dimension`` and ``n_features`` then have no effect.
    random_state : int, Generator or None
        Seed. Give another one than before when drawing again from ``bases``.

    Returns
    -------
    Subspaces

    Raises
    ------
    ConfigError
        A number is out of its range, or the sequences differ in length.

    Examples
    --------
    >>> from selfexpress.datasets.synthetic import make_subspaces
    >>> seen = make_subspaces(3, dimension=2, n_features=9, random_state=0)
    >>> unseen = make_subspaces(bases=seen.bases, n_samples=[5, 1, 1], random_state=1)
    >>> unseen.labels.tolist()
    [0, 0, 0, 0, 0, 1, 2]
    """
    generator = _generator(random_state)
    if bases is None:
        bases = _random_bases(n_subspaces, dimension, n_features, generator)
    else:
        bases = _checked_bases(bases)
    counts = _per_subspace(n_samples, len(bases), "n_samples", smallest=0)
    _check_count(n_outliers, "n_outliers", smallest=0)
    _check_noise(noise)

    parts = [
        _unit_rows(generator.standard_normal((count, len(basis)))) @ basis
        for count, basis in zip(counts, bases, strict=True)
    ]  # (count, D) each
    n_coordinates = bases[0].shape[1]
    parts.append(_unit_rows(generator.standard_normal((n_outliers, n_coordinates))))
    points = np.concatenate(parts)  # (N, D)
    if noise:
        spread = noise / np.sqrt(n_coordinates)
        points += spread * generator.standard_normal(points.shape)
    names = [*range(len(bases)), -1]
    labels = np.repeat(np.array(names, dtype=np.int64), [*counts, n_outliers])
    return Subspaces(_unit_rows(points), labels, tuple(bases))


def _generator(
    random_state: int | np.random.Generator | None,
) -> np.random.Generator:
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            "random_state must be None, an integer of at least 0 or a Generator, got "
            f"{random_state!r}. Use 0."
        ) from error


def _random_bases(
    n_subspaces: int,
    dimension: int | Sequence[int],
    n_features: int,
    generator: np.random.Generator,
) -> list[NDArray[np.float64]]:
    """Draw subspaces uniformly: a Gaussian matrix spans no direction rather than any.

    QR only makes its columns orthonormal, it does not change their span.
    """
    _check_count(n_subspaces, "n_subspaces", smallest=1)
    _check_count(n_features, "n_features", smallest=1)
    dimensions = _per_subspace(dimension, n_subspaces, "dimension", smallest=1)
    if max(dimensions) > n_features:
        raise ConfigError(
            f"dimension must be at most n_features = {n_features}, got "
            f"{max(dimensions)}. Lower it, or raise n_features."
        )
    return [
        np.linalg.qr(generator.standard_normal((n_features, size))).Q.T
        for size in dimensions
    ]


def _checked_bases(
    bases: Sequence[NDArray[np.float64]],
) -> list[NDArray[np.float64]]:
    arrays = [np.asarray(basis, dtype=np.float64) for basis in bases]
    shapes = [basis.shape for basis in arrays]
    is_sound = arrays and all(len(shape) == 2 and shape[0] >= 1 for shape in shapes)
    if not is_sound or len({shape[1] for shape in shapes}) != 1:
        raise ConfigError(
            "bases must be arrays of shape (dimension, n_features) with the same "
            f"n_features, got shapes {shapes}. Pass the bases of an earlier result."
        )
    for basis in arrays:
        if not np.allclose(basis @ basis.T, np.eye(len(basis))):
            raise ConfigError(
                "bases must have orthonormal rows, got rows that are not. Use "
                "numpy.linalg.qr(basis.T).Q.T."
            )
    return arrays


def _per_subspace(
    value: int | Sequence[int], n_subspaces: int, name: str, *, smallest: int
) -> list[int]:
    """Return one number for each subspace."""
    values = [*value] if isinstance(value, Iterable) else [value] * n_subspaces
    if len(values) != n_subspaces:
        raise ConfigError(
            f"{name} must be one integer or one for each of the {n_subspaces} "
            f"subspaces, got {len(values)} of them. Give as many."
        )
    for number in values:
        _check_count(number, name, smallest=smallest)
    return [int(number) for number in values]


def _check_count(value: object, name: str, *, smallest: int) -> None:
    if not isinstance(value, int | np.integer) or value < smallest:
        raise ConfigError(
            f"{name} must be an integer of at least {smallest}, got {value!r}."
        )


def _check_noise(noise: object) -> None:
    if not isinstance(noise, Real) or not 0 <= float(noise) < np.inf:
        raise ConfigError(
            f"noise must be a finite number of at least 0, got {noise!r}. It is a "
            "length relative to points of length 1."
        )


def _unit_rows(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    scaled: NDArray[np.float64] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return scaled
