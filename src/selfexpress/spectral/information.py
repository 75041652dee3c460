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
from scipy.special import xlogy
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
    paths = [
        [
            information(_between(joint, owner, len(joint) - n_merges))
            for n_merges, owner in enumerate(_merge_steps(_ahead(joint, n_steps)))
        ]
        for n_steps in _STEPS
    ]
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


def _merge_steps(joint: NDArray[np.float64]) -> Iterator[NDArray[np.int64]]:
    """Yield the cluster of each piece, (K,), after every merge of a pair.

    Every piece is a cluster at first; at last there is one. Each merge is the one
    that loses the least information.
    """
    owner = np.arange(len(joint))
    yield owner
    sums = np.stack([_entropy_terms(row + joint).sum(axis=1) for row in joint])
    while len(joint) > 1:
        loss = _losses(joint, sums)
        kept, gone = sorted(np.unravel_index(loss.argmin(), loss.shape))
        number = np.arange(len(joint))
        number[gone] = kept
        number[gone + 1 :] -= 1
        owner = number[owner]
        # Only what has to do with the two changes.
        for column in joint[[kept, gone]]:
            sums -= _entropy_terms(column[:, None] + column)
        sums = np.delete(np.delete(sums, gone, axis=0), gone, axis=1)
        joint = _between(joint, number, len(sums))
        sums += _entropy_terms(joint[kept][:, None] + joint[kept])
        sums[kept] = sums[:, kept] = _entropy_terms(joint[kept] + joint).sum(axis=1)
        yield owner


def _merged(joint: NDArray[np.float64], n_clusters: int) -> NDArray[np.int64]:
    """Merge pairs until few enough clusters are left."""
    n_merges = max(0, len(joint) - n_clusters)
    return next(islice(_merge_steps(joint), n_merges, None))


def _losses(
    joint: NDArray[np.float64], sums: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the information lost by merging each pair, (K, K); infinite for none.

    ``sums`` has the entropy terms of the sum of every two rows, added up, (K, K).
    """
    terms, single = _entropy_terms(joint), _entropy_terms(joint.sum(axis=1))
    rows, own = terms.sum(axis=1), np.diag(joint)
    corner = _entropy_terms(own[:, None] + joint) - np.diag(terms)[:, None] - terms
    outside = sums - rows[:, None] - rows - corner - corner.T
    inside = _entropy_terms(own[:, None] + own + 2 * joint)
    inside -= np.diag(terms)[:, None] + np.diag(terms) + 2 * terms
    share = joint.sum(axis=1)
    shares = _entropy_terms(share[:, None] + share) - single[:, None] - single
    loss: NDArray[np.float64] = 2 * shares - 2 * outside - inside
    np.fill_diagonal(loss, np.inf)
    return loss


def _improved(
    joint: NDArray[np.float64], owner: NDArray[np.int64], n_clusters: int
) -> NDArray[np.int64]:
    """Let each piece in turn go where information grows most, until none does."""
    owner = owner.copy()
    between = _between(joint, owner, n_clusters)
    best = information(between)
    is_moving = True
    while is_moving:
        is_moving = False
        for piece in range(len(owner)):
            if (owner == owner[piece]).sum() == 1:
                continue
            found = _after_moves(joint, between, owner, piece)
            if found.max() > best + _least_gain(best):
                owner[piece], best = found.argmax(), found.max()
                between = _between(joint, owner, n_clusters)
                is_moving = True
    return owner


def _after_moves(
    joint: NDArray[np.float64],
    between: NDArray[np.float64],
    owner: NDArray[np.int64],
    piece: int,
) -> NDArray[np.float64]:
    """Return the information with a piece in each of the clusters, (k,).

    ``between`` is the joint distribution of the clusters as they are, (k, k).
    """
    home = owner[piece]
    links = np.bincount(owner, joint[piece], len(between))
    links[home] -= joint[piece, piece]
    rest = between.copy()  # without the piece
    rest[home] -= links
    rest[:, home] -= links
    rest[home, home] -= joint[piece, piece]
    rest = np.maximum(rest, 0)
    own, size = joint[piece, piece], joint[piece].sum()
    share = rest.sum(axis=1) + links
    with_piece = _entropy_terms(rest + links) - _entropy_terms(rest)
    corner = _entropy_terms(np.diag(rest) + 2 * links + own)
    corner -= _entropy_terms(np.diag(rest))
    gain = 2 * (with_piece.sum(axis=1) - np.diag(with_piece)) + corner
    gain -= 2 * (_entropy_terms(share + size) - _entropy_terms(share))
    before = _entropy_terms(rest).sum() - 2 * _entropy_terms(share).sum()
    result: NDArray[np.float64] = before + gain
    return result


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
    terms: NDArray[np.float64] = xlogy(shares, shares)
    return terms
