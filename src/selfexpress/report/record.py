"""What a run is: everything a report shows, and nothing that could be run.

Shapes: N samples, n of them in the graph, S of these shown as points, k clusters, c
classes, P pixels of the picture of |C|, M samples kept to be shown, G members in a line
of the gallery.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Setting:
    """A setting of the model as text, and what it is unless given."""

    name: str
    value: str
    default: str


@dataclass(frozen=True, eq=False)
class Graph:
    """The affinity graph in numbers.

    ``component_sizes`` are of the largest components, largest first; ``degrees`` (n,)
    count neighbours; ``eigenvalues`` are the smallest of the normalised Laplacian,
    none if they are not known.
    """

    n_edges: int
    n_isolated: int
    n_components: int
    component_sizes: tuple[int, ...]
    degrees: Integers
    eigenvalues: Floats


@dataclass(frozen=True, eq=False)
class Points:
    """The scatter of the spectral embedding.

    ``index`` (S,) are the samples shown, ascending; ``plane`` (S, 2) their places in
    65,536 steps; ``margins`` (S,) how clearly they belong to their cluster, from about
    0 to 1.
    """

    index: Integers
    plane: Integers
    margins: Floats


@dataclass(frozen=True, eq=False)
class Coefficients:
    """|C| as a picture and as sums.

    ``picture`` (P, P) holds the mean of |C| over tiles, rows and columns sorted by
    cluster; ``borders`` (k + 1,) where clusters start and end in it, from 0 to 1;
    ``between`` (k, k) the sum of |C| from the samples of a cluster (row) on those of
    another. ``n_empty`` counts rows without a coefficient.
    """

    picture: Floats
    borders: Floats
    between: Floats
    n_nonzero: int
    n_empty: int

    @property
    def inside(self) -> float:
        """Share of the weight that lies within clusters."""
        total = float(self.between.sum())
        return float(np.trace(self.between)) / total if total else 0.0


@dataclass(frozen=True, eq=False)
class Gallery:
    """Members of the clusters worth looking at.

    ``central`` and ``doubtful`` (k, G) are samples of each cluster, -1 where it has no
    more. ``sample_index`` (M,) are the samples kept in ``samples``: pictures
    (M, h, w) or (M, h, w, 3) of uint8, or rows (M, d) of float32.
    """

    central: Integers
    doubtful: Integers
    sample_index: Integers
    samples: Array

    @property
    def has_pictures(self) -> bool:
        """Whether samples are pictures, not rows."""
        return self.samples.ndim > 2


@dataclass(frozen=True, eq=False)
class Run:
    """A fitted model and its data, as far as a report needs them."""

    title: str
    method: str
    created: str  # date and time
    command: str
    n_features: int
    n_clusters: int
    versions: dict[str, str]
    settings: tuple[Setting, ...]
    seconds: dict[str, float]  # by stage
    scores: dict[str, float]  # against the truth
    certificate: dict[str, float]  # of coefficients that were solved for
    class_names: tuple[str, ...]
    warnings: tuple[str, ...]
    labels: Integers  # (N,)
    truth: Integers  # positions in class_names, (N,) or (0,)
    history: dict[str, Floats]  # by training step
    points: Points
    coefficients: Coefficients
    graph: Graph
    gallery: Gallery

    @cached_property
    def sizes(self) -> Integers:
        """Samples in each cluster, (k,)."""
        return np.bincount(self.labels, minlength=self.n_clusters)

    @property
    def has_truth(self) -> bool:
        """Whether the true classes are known."""
        return len(self.truth) > 0

    @property
    def n_in_graph(self) -> int:
        """Samples that the graph was built of."""
        return len(self.graph.degrees)

    @cached_property
    def confusion(self) -> Integers:
        """Samples by cluster and class, (k, c)."""
        shape = (self.n_clusters, len(self.class_names))
        return confusion_counts(self.labels, self.truth, shape)

    @cached_property
    def matched(self) -> Integers:
        """The class that each cluster is matched to, -1 for none, (k,)."""
        return matched_classes(self.confusion)


def confusion_counts(labels: Array, truth: Array, shape: tuple[int, int]) -> Integers:
    """Count samples by cluster (row) and class (column)."""
    flat = labels.astype(np.int64) * shape[1] + truth.astype(np.int64)
    return np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape)


def matched_classes(confusion: Integers) -> Integers:
    """Return the class that each cluster is matched to, -1 for none, (k,).

    The matching is the one by which clustering accuracy is counted.
    """
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(confusion, maximize=True)
    matched = np.full(len(confusion), -1)
    matched[rows] = columns
    return matched
