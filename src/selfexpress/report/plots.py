"""Plots of a fitted model; each draws on given axes, or new ones, and returns them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from selfexpress.errors import DataError
from selfexpress.metrics import label_array
from selfexpress.report.measure import picture_of
from selfexpress.report.pictures import group_colours
from selfexpress.report.planar import planar_map
from selfexpress.report.record import confusion_counts, matched_classes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_IN_LEGEND = 30
_MOST_NUMBERED = 20


def plot_coefficients(
    coefficients: sparse.csr_array,
    labels: ArrayLike,
    *,
    axes: Axes | None = None,
    n_pixels: int = 600,
) -> Axes:
    """Draw |C| with rows and columns sorted by label; clusters show as blocks.

    Parameters
    ----------
    coefficients : csr_array of shape (N, N)
    labels : array-like of shape (N,)
    axes : matplotlib Axes, optional
    n_pixels : int
        Side of the picture. With more rows than this, a pixel shows the mean of
        several rows and columns.

    Returns
    -------
    matplotlib Axes
    """
    labels = label_array(labels, "labels")
    _require_as_many(len(labels), coefficients.shape, "coefficients", square=True)
    codes = np.unique(labels, return_inverse=True)[1]
    picture = picture_of(abs(sparse.csr_array(coefficients)).tocoo(), codes, n_pixels)
    shown = picture[picture > 0]
    axes = axes or _new_axes()
    axes.imshow(
        picture,
        cmap="magma",
        vmax=float(np.quantile(shown, 0.98)) if shown.size else 1.0,
        extent=(0, len(labels), len(labels), 0),
        interpolation="nearest",
    )
    for border in np.cumsum(np.unique(labels, return_counts=True)[1])[:-1]:
        axes.axhline(border, color="white", linewidth=0.4, alpha=0.6)
        axes.axvline(border, color="white", linewidth=0.4, alpha=0.6)
    axes.set(title="|C|, sorted by label", xlabel="by sample", ylabel="sample")
    return axes


def plot_history(
    history: Mapping[str, NDArray[np.float64]], *, axes: Axes | None = None
) -> Axes:
    """Draw objective and penalty by step.

    Parameters
    ----------
    history : mapping of str to ndarray
        ``history_`` of a fitted model.
    axes : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    axes = axes or _new_axes()
    steps = np.arange(1, len(history["objective"]) + 1)
    axes.plot(steps, history["objective"], label="objective")
    axes.plot(steps, history["penalty"], label="penalty")
    axes.set(title="training", xlabel="step", yscale="log")
    axes.legend()
    return axes


def plot_embedding(
    embedding: NDArray[np.float64],
    labels: ArrayLike,
    *,
    axes: Axes | None = None,
    seed: int = 0,
) -> Axes:
    """Draw a spectral embedding on a plane, coloured by label.

    Parameters
    ----------
    embedding : ndarray of shape (N, E)
        ``embedding_`` of a fitted model.
    labels : array-like of shape (N,)
        Clusters or classes.
    axes : matplotlib Axes, optional
    seed : int
        Of the projection, t-SNE of up to 2,000 points between which the others lie.

    Returns
    -------
    matplotlib Axes
    """
    labels = label_array(labels, "labels")
    _require_as_many(len(labels), np.shape(embedding), "embedding")
    plane = planar_map(embedding, seed=seed)
    axes = axes or _new_axes()
    names = np.unique(labels)
    size = float(np.clip(6000 / len(labels), 0.5, 12))
    for name, colour in zip(names, group_colours(len(names)), strict=True):
        x, y = plane[labels == name].T
        axes.scatter(x, y, s=size, color=colour, linewidths=0, label=str(name))
    axes.set(title="spectral embedding", aspect="equal", xticks=[], yticks=[])
    if len(names) <= _MOST_IN_LEGEND:
        axes.legend(markerscale=np.sqrt(40 / size), loc="center left",
                    bbox_to_anchor=(1, 0.5), frameon=False)  # fmt: skip
    return axes


def plot_confusion(
    labels: ArrayLike, truth: ArrayLike, *, axes: Axes | None = None
) -> Axes:
    """Draw how many samples of each class are in each cluster.

    Parameters
    ----------
    labels, truth : array-like of shape (N,)
        Clusters and classes.
    axes : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        Clusters from top to bottom, in an order that puts the class that each is
        matched to on the diagonal.
    """
    found, true = label_array(labels, "labels"), label_array(truth, "truth")
    _require_as_many(len(found), true.shape, "truth")
    clusters, cluster_codes = np.unique(found, return_inverse=True)
    classes, class_codes = np.unique(true, return_inverse=True)
    shape = (len(clusters), len(classes))
    counts = confusion_counts(cluster_codes, class_codes, shape)
    matched = matched_classes(counts)
    order = np.argsort(np.where(matched < 0, len(classes), matched), kind="stable")
    counts = counts[order]
    axes = axes or _new_axes()
    axes.imshow(np.sqrt(counts), cmap="Blues", aspect="auto")
    axes.set_xticks(range(len(classes)), [str(name) for name in classes])
    axes.set_yticks(range(len(clusters)), [str(name) for name in clusters[order]])
    axes.set(title="samples by cluster and class", xlabel="class", ylabel="cluster")
    if max(shape) <= _MOST_NUMBERED:
        half = np.sqrt(counts.max()) / 2
        for (row, column), count in np.ndenumerate(counts):
            colour = "white" if np.sqrt(count) > half else "black"
            axes.text(column, row, str(count), ha="center", va="center", color=colour)
    return axes


def _require_as_many(
    n_labels: int, shape: tuple[int, ...], name: str, *, square: bool = False
) -> None:
    """Refuse what has not one row for each label, or not one column."""
    if shape[0] != n_labels or (square and shape[1] != n_labels):
        raise DataError(
            f"{name} must have one row{' and one column' if square else ''} for each "
            f"of the {n_labels} labels, got shape {tuple(shape)}. Of a model that "
            "clustered a sample of its rows, give labels_[sample_indices_]."
        )


def _new_axes() -> Axes:
    """Return axes of a figure that belongs to no window."""
    from matplotlib.figure import Figure

    return Figure(figsize=(6, 6), layout="constrained").subplots()
