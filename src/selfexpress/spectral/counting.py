"""How many clusters a graph has, where nobody says so.

Two signs are looked for, in this order.

A gap in the eigenvalues of the normalised Laplacian: if the next one after the k-th is
many times as large, and none of the k groups it speaks of is tiny, there are k
clusters. So it is where the graph falls into pieces, or nearly.

A bend in the information: merging pieces pair by pair (``spectral.information``) gives
the information I(k) that k clusters keep. While merging joins parts of one cluster
little is lost, afterwards much. I is at most log k, so that its slope is measured
against that, s(i, j) = (I(j) - I(i)) / log(j / i), and the number chosen has the
largest ratio of slopes before and after it, ::

    min { s(i, k) : floor(k/2) <= i < k } / max { s(k, j) : k < j <= 2k }

Smallest and largest make sure that a single uneven merge is no bend, and the range
grows with k as differences between counts do.

Shapes: N nodes, E eigenvectors, K pieces.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from selfexpress.errors import DegenerateWarning
from selfexpress.solvers.compiled import in_threads
from selfexpress.spectral.eigenvectors import SMALLEST_EIGENVALUE, unit_rows
from selfexpress.spectral.information import Walk, information_path
from selfexpress.spectral.k_means import nested_k_means

MOST_CLUSTERS = 100
# Pieces for each cluster that is considered, as a bend is seen from twice as many.
_PIECES_A_CLUSTER = 2
# Nodes for each piece: in pieces of two or three the walker stays by chance.
_NODES_A_PIECE = 4
# Eigenvectors that a count needs: pieces are found in as many dimensions as there may
# be clusters, and a gap after the last is seen, too.
N_EIGENVECTORS = MOST_CLUSTERS + 1
# How many times the last eigenvalue the next is, if a gap is to settle the matter. More
# than where the number is known: among many numbers a gap after 2 is often there.
_PLAIN_GAP = 10.0
# A group smaller than this part of an even share is not one that a gap may count.
_SMALLEST_PART = 0.1
# A slope below this is none; the steepest possible is 1.
_SMALLEST_SLOPE = 1e-3
# Restarts of k-means for the groups before a gap, which are far apart.
_RESTARTS = 4
# Sets of pieces to merge; the most information that any of them keeps is taken, so
# that a cluster which one of them cuts badly makes no bend.
_SETS_OF_PIECES = 3


@dataclass(frozen=True)
class Bend:
    """Where information grows more slowly.

    Attributes
    ----------
    n_clusters : int
    ratio : float
        Of the slopes before and after; at most 1 if there is no bend at all.
    """

    n_clusters: int
    ratio: float


def count_clusters(
    affinity: sparse.csr_array,
    eigenvalues: NDArray[np.float64],
    vectors: NDArray[np.float64],
    *,
    seed: int,
    device: torch.device | str = "cpu",
    n_threads: int = 1,
) -> int:
    """Return the number of clusters of a graph, from 2 to 100.

    Fewer are considered of small graphs: at most an eighth of the nodes, unless there
    is a gap in the eigenvalues.

    Parameters
    ----------
    affinity : csr_array of shape (N, N)
        Symmetric and non-negative.
    eigenvalues : ndarray of shape (E,)
        Smallest of the normalised Laplacian, ascending; 101 of them, or N if fewer.
    vectors : ndarray of shape (N, E)
    seed : int
    device : torch.device or str
    n_threads : int

    Warns
    -----
    DegenerateWarning
        If no number stands out.
    """
    n_nodes = affinity.shape[0]
    if len(eigenvalues) > MOST_CLUSTERS and eigenvalues[-1] <= SMALLEST_EIGENVALUE:
        _warn_of_guess(MOST_CLUSTERS)
        return MOST_CLUSTERS
    n_groups = gap_count(eigenvalues[: n_nodes // 2 + 1])
    if n_groups is not None:
        embedding = unit_rows(vectors[:, :n_groups])
        groups = nested_k_means(
            embedding, [n_groups], n_init=_RESTARTS, seed=seed, device=device
        )[0]
        smallest = np.bincount(groups, minlength=n_groups).min()
        if smallest >= _SMALLEST_PART * n_nodes / n_groups:
            return n_groups
    n_pieces = min(_PIECES_A_CLUSTER * MOST_CLUSTERS, n_nodes // _NODES_A_PIECE)
    bend = Bend(min(2, n_nodes), 0.0)
    if n_pieces >= 2 * _PIECES_A_CLUSTER:
        embedding = unit_rows(vectors[:, : n_pieces // _PIECES_A_CLUSTER])
        walk = Walk(affinity, device=device)

        def path(own_seed: int) -> NDArray[np.float64]:
            pieces = nested_k_means(
                embedding, [n_pieces], n_init=1, seed=own_seed, device=device
            )[0]
            return information_path(walk.joint(pieces, n_pieces))

        paths = in_threads(path, range(seed, seed + _SETS_OF_PIECES), n_threads)
        bend = sharpest_bend(np.max(paths, axis=0))
    if bend.ratio <= 1:
        _warn_of_guess(bend.n_clusters)
    return bend.n_clusters


def gap_count(eigenvalues: NDArray[np.float64]) -> int | None:
    """Return how many eigenvalues, 2 or more, lie before a plain gap; None without.

    Parameters
    ----------
    eigenvalues : ndarray of shape (E,), ascending
    """
    if len(eigenvalues) < 3:
        return None
    values = np.maximum(eigenvalues, SMALLEST_EIGENVALUE)
    ratios = values[2:] / values[1:-1]
    widest = int(ratios.argmax())
    return widest + 2 if ratios[widest] >= _PLAIN_GAP else None


def sharpest_bend(path: NDArray[np.float64]) -> Bend:
    """Return the number of clusters after which information grows least, from 2.

    Parameters
    ----------
    path : ndarray of shape (K,)
        Information of 1, 2, ... K clusters; K is at least 4. Numbers up to K / 2 are
        considered.
    """
    logs = np.log(np.arange(1, len(path) + 1))
    bends = []
    for k in range(2, len(path) // 2 + 1):
        before, after = slice(k // 2 - 1, k - 1), slice(k, 2 * k)
        rise = (path[k - 1] - path[before]) / (logs[k - 1] - logs[before])
        later = (path[after] - path[k - 1]) / (logs[after] - logs[k - 1])
        ratio = rise.min() / max(later.max(), _SMALLEST_SLOPE)
        bends.append(Bend(k, float(ratio)))
    return max(bends, key=lambda bend: bend.ratio)


def _warn_of_guess(n_clusters: int) -> None:
    warnings.warn(
        "Some number of clusters, at most 100, should stand out for "
        f"n_clusters='auto', but none does, so that {n_clusters} is a guess; give "
        "n_clusters, or try other features.",
        DegenerateWarning,
        stacklevel=6,
    )
