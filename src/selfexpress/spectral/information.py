"""Clusters that keep the most information about a walk on the graph.

A walker steps along edges, by their weight. Knowing the cluster it is in says how
much about the cluster of its next step? That is the mutual information of the two, in
nats. It is low for clusters that the walker leaves often, and for partitions of which
one cluster is nearly everything: it weighs cut against size without a factor to
choose. The normalised cut alone, which plain spectral clustering relaxes, prefers to
split small groups off where clusters are joined more closely than groups within them.

Many small pieces, found in the spectral embedding, are merged one pair after the other
where that loses the least information (the agglomerative information bottleneck);
then pieces, and at last single nodes, move where that gains some.

Shapes: N nodes, K pieces, k clusters.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor
from torch.nn import functional

from selfexpress.ops.sparse import to_sparse_tensor

# Merging looks ahead by so many steps of the walk; the best result is kept.
_STEPS = (1, 2, 3)
_MAX_ROUNDS = 20
# Gains below this share are rounding, or not worth a round.
_SMALLEST_GAIN = 1e-6
# Stands for a step that never occurs; small against any that does.
_NEVER = 1e-12
# A larger share of linked pairs than this is treated as all.
_MOST = 0.6
# Has a logarithm, unlike 0.
_TINIEST = 1e-300


class Walk:
    """A random walk on the nodes of a graph.

    Parameters
    ----------
    affinity : csr_array of shape (N, N)
        Symmetric and non-negative.
    device : torch.device or str
        Where links are added up.
    """

    def __init__(
        self, affinity: sparse.csr_array, *, device: torch.device | str
    ) -> None:
        self._affinity = to_sparse_tensor(affinity, torch.float32, device)
        self._is_isolated = torch.from_numpy(np.diff(affinity.indptr) == 0).to(device)

    def joint(self, labels: NDArray[np.int64], n_labels: int) -> NDArray[np.float64]:
        """Return how often the walker steps from one label to another, (K, K)."""
        return self._joint_and_links(labels, n_labels)[0]

    def refine(
        self, labels: NDArray[np.int64], n_clusters: int
    ) -> tuple[NDArray[np.int64], float]:
        """Move nodes between clusters while that gains information.

        In each round every node goes where the information grows fastest. A round
        that gains nothing or empties a cluster is not taken.

        Returns
        -------
        (ndarray of shape (N,), float)
            Labels and their information.
        """
        joint, links = self._joint_and_links(labels, n_clusters)
        best = information(joint)
        for _ in range(_MAX_ROUNDS):
            current = self._on_device(labels)
            steps = np.maximum(joint, _NEVER)
            steps /= steps.sum(axis=1, keepdims=True)
            logs = torch.from_numpy(np.log(steps)).to(links)
            moved = torch.where(
                self._is_isolated, current, (links @ logs.T).argmax(dim=1)
            )
            new_labels: NDArray[np.int64] = moved.cpu().numpy()
            joint, links = self._joint_and_links(new_labels, n_clusters)
            found = information(joint)
            n_used = len(np.unique(new_labels))
            if found <= best + _least_gain(best) or n_used < len(np.unique(labels)):
                break
            labels, best = new_labels, found
        return labels, best

    def _joint_and_links(
        self, labels: NDArray[np.int64], n_labels: int
    ) -> tuple[NDArray[np.float64], Tensor]:
        """Return :meth:`joint`, and each node's weight to each label, (N, K)."""
        members = functional.one_hot(self._on_device(labels), n_labels)
        members = members.to(self._affinity.dtype)
        links = self._affinity @ members
        joint = (members.T @ links).double().cpu().numpy()
        # Symmetric but for rounding.
        return (joint + joint.T) / max(2 * joint.sum(), _NEVER), links

    def _on_device(self, labels: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(labels).to(self._is_isolated.device)


def information(joint: NDArray[np.float64]) -> float:
    """Return the mutual information of the two ends of a step, in nats."""
    ends = _entropy_terms(joint.sum(axis=1))
    return float(_entropy_terms(joint).sum() - 2 * ends.sum())


def merge_pieces(joint: NDArray[np.float64], n_clusters: int) -> NDArray[np.int64]:
    """Join pieces into clusters that keep the most information found.

    Parameters
    ----------
    joint : ndarray of shape (K, K)
        Of :meth:`Walk.joint`.
    n_clusters : int

    Returns
    -------
    ndarray of shape (K,)
        Cluster of each piece.
    """
    found = [
        _improved(joint, _merged(_ahead(joint, n_steps), n_clusters), n_clusters)
        for n_steps in _STEPS
    ]
    return max(found, key=lambda owner: information(_between(joint, owner, n_clusters)))


def information_path(joint: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the information of 1, 2, ... K clusters, merged pair by pair.

    Parameters
    ----------
    joint : ndarray of shape (K, K)
        Of :meth:`Walk.joint`.

    Returns
    -------
    ndarray of shape (K,)
        The most that any look ahead keeps; the first is 0.
    """
    paths = []
    for n_steps in _STEPS:
        left = joint.copy()
        path = [information(left)]
        for kept, gone in _pairs(_ahead(joint, n_steps)):
            left = _join(left, kept, gone)
            path.append(information(left))
        paths.append(path)
    best: NDArray[np.float64] = np.max(paths, axis=0)[::-1]
    best[0] = 0
    return best


def _ahead(joint: NDArray[np.float64], n_steps: int) -> NDArray[np.float64]:
    """Return the joint distribution of two ends of several steps."""
    share = joint.sum(axis=1, keepdims=True)
    steps = np.linalg.matrix_power(joint / np.maximum(share, _NEVER), n_steps)
    ahead = share * steps
    symmetric: NDArray[np.float64] = (ahead + ahead.T) / 2
    return symmetric


def _pairs(joint: NDArray[np.float64]) -> Iterator[tuple[int, int]]:
    """Yield which two are merged next, until one is left, as :func:`_join` does it.

    Each merge is the one that loses the least information. With
    ``g(x, y) = f(x) + f(y) - f(x + y)``, ``f(x) = x log x``, that of i and j loses ::

        2 sum over v not i, j of g(J[i, v], J[j, v])
        + f(J[i, i]) + f(J[j, j]) + 2 f(J[i, j]) - f(J[i, i] + J[j, j] + 2 J[i, j])
        - 2 g(share[i], share[j])

    and g is 0 where x or y is. So a merge of a and b changes the loss of other pairs
    by their links to a and b alone, and only if both have some.
    """
    joint, terms = joint.copy(), _entropy_terms(joint)
    loss = np.full_like(joint, np.inf)
    for row in range(len(joint) - 1):
        later = slice(row + 1, None)
        loss[row, later] = loss[later, row] = _losses(joint, terms, row, later)
    while len(joint) > 1:
        kept, gone = sorted(map(int, np.unravel_index(loss.argmin(), loss.shape)))
        yield kept, gone
        linked = _places((joint[kept] > 0) | (joint[gone] > 0))
        one, other = joint[kept, linked], joint[gone, linked]
        single = _entropy_terms(one + other) - terms[kept, linked] - terms[gone, linked]
        change = single[:, None] + single
        change -= _entropy_terms(np.add.outer(one + other, one + other))
        for links in (one, other):
            change += _entropy_terms(np.add.outer(links, links))
        change *= 2
        if isinstance(linked, slice):
            loss += change
        else:
            loss[np.ix_(linked, linked)] += change
        joint, loss = _join(joint, kept, gone), _join(loss, kept, gone)
        terms = _join(terms, kept, gone)
        terms[kept] = terms[:, kept] = _entropy_terms(joint[kept])
        loss[kept] = loss[:, kept] = _losses(joint, terms, kept, slice(None))
        np.fill_diagonal(loss, np.inf)


def _places(mask: NDArray[np.bool_]) -> NDArray[np.int64] | slice:
    """Return where a mask holds; all places if it does at most, which is faster."""
    return slice(None) if mask.mean() > _MOST else np.flatnonzero(mask)


def _join(matrix: NDArray[np.float64], kept: int, gone: int) -> NDArray[np.float64]:
    """Add one cluster to another in place; the last one takes its number."""
    matrix[kept] += matrix[gone]
    matrix[:, kept] += matrix[:, gone]
    matrix[gone] = matrix[-1]
    matrix[:, gone] = matrix[:, -1]
    return matrix[:-1, :-1]


def _merged(joint: NDArray[np.float64], n_clusters: int) -> NDArray[np.int64]:
    """Merge pairs until few enough clusters are left."""
    owner = np.arange(len(joint))
    for kept, gone in islice(_pairs(joint), max(0, len(joint) - n_clusters)):
        last = owner.max()
        owner[owner == gone] = kept
        owner[owner == last] = gone
    return owner


def _losses(
    joint: NDArray[np.float64], terms: NDArray[np.float64], row: int, rows: slice
) -> NDArray[np.float64]:
    """Return the information lost by merging one cluster with each of some others."""
    f, linked = _entropy_terms, _places(joint[row] > 0)
    links, own, share = joint[row], np.diag(joint), joint.sum(axis=1)
    outside = (terms[rows, linked] - f(joint[rows, linked] + links[linked])).sum(axis=1)
    outside += terms[row, linked].sum()
    # The columns of the two themselves.
    outside -= terms[row, row] + terms[row, rows] - f(links[row] + links[rows])
    own_terms = np.diag(terms)[rows]
    outside -= terms[row, rows] + own_terms - f(links[rows] + own[rows])
    inside = terms[row, row] + own_terms + 2 * terms[row, rows]
    inside -= f(own[row] + own[rows] + 2 * links[rows])
    shares = f(share)[rows] + f(share)[row] - f(share[row] + share[rows])
    loss: NDArray[np.float64] = 2 * outside + inside - 2 * shares
    return loss


def _improved(
    joint: NDArray[np.float64], owner: NDArray[np.int64], n_clusters: int
) -> NDArray[np.int64]:
    """Let each piece in turn go where information grows most, until none does."""
    owner = owner.copy()
    between = _between(joint, owner, n_clusters)
    least_gain = _least_gain(information(between))
    sizes = np.bincount(owner, minlength=n_clusters)
    n_still = piece = 0
    while n_still < len(owner):
        home = owner[piece]
        n_still += 1
        if sizes[home] > 1:
            gains = _gains(joint, between, owner, piece)
            chosen = gains.argmax()
            if gains[chosen] > least_gain:
                owner[piece], n_still = chosen, 0
                sizes[home] -= 1
                sizes[chosen] += 1
                between = _between(joint, owner, n_clusters)
        piece = (piece + 1) % len(owner)
    return owner


def _gains(
    joint: NDArray[np.float64],
    between: NDArray[np.float64],
    owner: NDArray[np.int64],
    piece: int,
) -> NDArray[np.float64]:
    """Return the information gained by moving a piece to each of the clusters, (k,).

    ``between`` is the joint distribution of the clusters as they are, (k, k).
    """
    f = _entropy_terms
    home, own, size = owner[piece], joint[piece, piece], joint[piece].sum()
    links = np.bincount(owner, joint[piece], len(between))
    links[home] -= own
    share = between.sum(axis=1)
    share[home] -= size
    inside = np.diag(between).copy()
    inside[home] -= 2 * links[home] + own
    linked = np.flatnonzero(links > 0)
    rest = between[:, linked]  # without the piece, (k, linked)
    rest[home] -= links[linked]
    rest[:, linked == home] -= links[:, None]
    rest[home, linked == home] = inside[home]
    rest, inside, share = (np.maximum(part, 0) for part in (rest, inside, share))
    gains = 2 * (f(rest + links[linked]) - f(rest)).sum(axis=1)
    # A cluster's links to itself count once.
    gains -= 2 * (f(inside + links) - f(inside))
    gains += f(inside + 2 * links + own) - f(inside)
    gains -= 2 * (f(share + size) - f(share))
    gained: NDArray[np.float64] = gains - gains[home]
    return gained


def _least_gain(best: float) -> float:
    """Return what counts as a gain; rounding may leave information below 0."""
    return _SMALLEST_GAIN * max(best, _SMALLEST_GAIN)


def _between(
    joint: NDArray[np.float64], owner: NDArray[np.int64], n_clusters: int
) -> NDArray[np.float64]:
    """Return the joint distribution of clusters, given that of their pieces."""
    members = np.eye(n_clusters)[owner]  # (K, k)
    between: NDArray[np.float64] = members.T @ joint @ members
    return between


def _entropy_terms(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    terms: NDArray[np.float64] = np.maximum(shares, _TINIEST)
    np.log(terms, out=terms)
    terms *= shares
    return terms
