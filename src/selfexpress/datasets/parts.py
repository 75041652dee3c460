"""Samples and labels of one part of a data set, checked against what is published."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from selfexpress.datasets.specification import DatasetSpec, StoredFile
from selfexpress.errors import DataError


@dataclass(frozen=True, eq=False)
class Part:
    """Samples of one part of a data set, with labels from 0.

    Attributes
    ----------
    samples : ndarray of shape (N, ...)
    labels : ndarray of shape (N,), int64
    """

    samples: NDArray[np.generic]
    labels: NDArray[np.int64]


def checked_part(
    samples: NDArray[np.generic],
    labels: NDArray[np.generic],
    spec: DatasetSpec,
    *,
    part: str,
    source: str,
) -> Part:
    """Return samples and labels of the published shape, labels counted from 0."""
    shape = (spec.stored[part], *spec.sample_shape)
    if samples.shape != shape or labels.shape != shape[:1]:
        raise DataError(
            f"{source} must hold samples of shape {shape} and a label each, got "
            f"{samples.shape} and {labels.shape}. Fetch the data set again."
        )
    from_zero = labels.astype(np.int64) - spec.first_label
    check_range(from_zero, 0, len(spec.class_names), source=source)
    # Contiguous and writable: torch.from_numpy wants both.
    return Part(np.require(samples, requirements=["C", "W"]), from_zero)


def check_range(
    labels: NDArray[np.generic], first: int, n_classes: int, *, source: str
) -> None:
    """Raise DataError if a label lies outside its ``n_classes`` values."""
    if labels.size and (labels.min() < first or labels.max() >= first + n_classes):
        raise DataError(
            f"{source} must hold labels from {first} to {first + n_classes - 1}, got "
            f"{labels.min()} to {labels.max()}. Fetch the data set again."
        )


def files_of_part(files: tuple[StoredFile, ...], part: str) -> list[StoredFile]:
    """Return the files that belong to ``part``, in order."""
    return [file for file in files if file.part == part]
