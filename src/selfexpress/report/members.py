"""Which members of a cluster are typical, and which could belong elsewhere.

Shapes: N samples, E dimensions of the embedding, k clusters, G members.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from selfexpress.report.record import Floats, Integers

# Rows whose distances to all centres are held at a time.
_BLOCK_ROWS = 16_384
_NO_DOUBT = 0.9


@dataclass(frozen=True, eq=False)
class Membership:
    """How samples lie to the centres of the clusters in the embedding.

    Attributes
    ----------
    distances : ndarray of shape (N,), float32
        To the centre of a sample's own cluster.
    margins : ndarray of shape (N,), float32
        ``(other - own) / (other + own)``, where ``own`` is that distance and ``other``
        the one to the nearest other centre: 1 at the own centre, 0 half-way between
        two, negative if another centre is nearer. 1 with a single cluster.
    """

    distances: Floats
    margins: Floats


def membership(embedding: Floats, labels: Integers, n_clusters: int) -> Membership:
    """Measure how clearly each sample belongs to its cluster.

    The centre of a cluster is the mean of its embedding rows.
    """
    sizes = np.bincount(labels, minlength=n_clusters)
    sums = np.zeros((n_clusters, embedding.shape[1]))
    np.add.at(sums, labels, embedding)
    centres = sums / np.maximum(sizes, 1)[:, None]  # (k, E)
    distances = np.empty(len(labels), dtype=np.float32)
    margins = np.empty(len(labels), dtype=np.float32)
    for start in range(0, len(labels), _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        own, other = _own_and_other(embedding[rows], labels[rows], centres, sizes)
        distances[rows] = own
        margins[rows] = _margin(own, other)
    return Membership(distances, margins)


def _own_and_other(
    rows: Floats, labels: Integers, centres: Floats, sizes: Integers
) -> tuple[Floats, Floats]:
    distance = cdist(rows, centres)  # (B, k)
    distance[:, sizes == 0] = np.inf
    place = np.arange(len(rows))
    own = distance[place, labels]
    distance[place, labels] = np.inf
    return own, distance.min(axis=1)


def _margin(own: Floats, other: Floats) -> Floats:
    total = own + other
    # Two centres in one place tell nothing apart; infinity means no other cluster.
    margin = np.where(np.isinf(total), 1.0, 0.0)
    has_margin = np.isfinite(total) & (total > 0)
    np.divide(other - own, total, out=margin, where=has_margin)
    return margin


def central_members(
    found: Membership, labels: Integers, n_clusters: int, count: int
) -> Integers:
    """Return the samples nearest to the centre of each cluster, (k, G)."""
    return _first_of_each(found.distances, labels, n_clusters, count)


def doubtful_members(
    found: Membership, labels: Integers, n_clusters: int, count: int
) -> Integers:
    """Return the samples of smallest margin of each cluster, (k, G).

    A margin of 0.9 or more is no doubt at all: such samples are left out.
    """
    chosen = _first_of_each(found.margins, labels, n_clusters, count)
    return np.where(found.margins[chosen] < _NO_DOUBT, chosen, -1)


def _first_of_each(
    values: Floats, labels: Integers, n_clusters: int, count: int
) -> Integers:
    """Return the positions of the smallest values of each label, -1 where none."""
    order = np.lexsort((values, labels))
    starts = np.searchsorted(labels[order], np.arange(n_clusters + 1))
    chosen = np.full((n_clusters, count), -1, dtype=np.int64)
    for cluster in range(n_clusters):
        first, last = starts[cluster], starts[cluster + 1]
        members = order[first : min(last, first + count)]
        chosen[cluster, : len(members)] = members
    return chosen
