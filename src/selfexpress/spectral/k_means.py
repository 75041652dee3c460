"""k-means, with all restarts in one batch on a GPU.

Shapes: N points, E dimensions, R restarts, k clusters.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from selfexpress.solvers.compiled import in_threads

_MAX_ITERATIONS = 300
# Sum of squared moves of the centres, relative to the variance of the points.
_TOLERANCE = 1e-4
# Iterations between looks at the moves, each of which waits for the device.
_CHECK_EVERY = 5
# Distances at a time: 2^28 float32 numbers are 1 GiB.
_BATCH_ENTRIES = 2**28
# Rows for each cluster, and at least, that restarts see on a CPU, and that their first
# centres are drawn of.
_ROWS_A_CLUSTER, _FEWEST_ROWS = 30, 10_000
_ROWS_TO_START, _FEWEST_TO_START = 10, 2_000
# On a CPU, as many as its cache holds.
_BLOCK_ENTRIES = 2**18


def k_means_labels(
    embedding: NDArray[np.float64],
    n_clusters: int,
    *,
    n_init: int,
    seed: int,
    device: torch.device | str,
) -> NDArray[np.int64]:
    """Return labels by k-means, of scikit-learn on a CPU and our own on a GPU."""
    if torch.device(device).type == "cpu":
        with warnings.catch_warnings():
            # Fewer distinct points than clusters; the caller says so in our words.
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = KMeans(n_clusters, n_init=n_init, random_state=seed).fit(embedding)
        labels: NDArray[np.int64] = found.labels_.astype(np.int64)
        return labels
    points = torch.from_numpy(embedding).to(device, torch.float32)
    return k_means(points, n_clusters, n_init=n_init, seed=seed).cpu().numpy()


def nested_k_means(
    embedding: NDArray[np.float64],
    numbers: Sequence[int],
    *,
    n_init: int,
    seed: int,
    device: torch.device | str,
    n_threads: int = 1,
) -> list[NDArray[np.int64]]:
    """Return labels by k-means for each of several numbers of clusters.

    On a CPU, centres are drawn once for all numbers: they are drawn one after the
    other, so that the first of many are as good a start as a few. Of many rows, all
    restarts but the best see a sample only.
    """
    points = torch.from_numpy(embedding).to(device, torch.float32).contiguous()
    if points.device.type != "cpu":
        return [
            k_means(points, number, n_init=n_init, seed=seed).cpu().numpy()
            for number in numbers
        ]

    most = max(numbers)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(points), generator=generator)
    sample = points[order[: max(_FEWEST_ROWS, _ROWS_A_CLUSTER * most)]]
    to_start = sample[: max(_FEWEST_TO_START, _ROWS_TO_START * most)]

    def drawn(start: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed * n_init + start)
        return _starting_centers(to_start, most, 1, generator)[0]

    starts = in_threads(drawn, range(n_init), n_threads)
    tasks = [(number, start) for number in numbers for start in starts]
    found = in_threads(
        lambda task: _lloyd_on_cpu(sample, task[1][: task[0]]), tasks, n_threads
    )
    best = [
        min(found[place : place + n_init], key=lambda result: result[2])[1]
        for place in range(0, len(found), n_init)
    ]
    every = in_threads(lambda centers: _lloyd_on_cpu(points, centers), best, n_threads)
    return [labels for labels, _, _ in every]


def k_means(points: Tensor, n_clusters: int, *, n_init: int, seed: int) -> Tensor:
    """Return the labels of the best of ``n_init`` restarts, int64 of shape (N,).

    Starts by greedy k-means++, then Lloyd's iterations. The same seed gives the same
    labels on the same device.
    """
    generator = torch.Generator(device=points.device).manual_seed(seed)
    n_together = max(1, _BATCH_ENTRIES // (len(points) * n_clusters))
    best_inertia, best_labels = math.inf, None
    for first in range(0, n_init, n_together):
        n_restarts = min(n_together, n_init - first)
        centers = _starting_centers(points, n_clusters, n_restarts, generator)
        labels, inertia = _lloyd(points, centers)
        chosen = int(inertia.argmin())
        if best_labels is None or float(inertia[chosen]) < best_inertia:
            best_inertia, best_labels = float(inertia[chosen]), labels[:, chosen]
    assert best_labels is not None
    return best_labels


def _starting_centers(
    points: Tensor, n_clusters: int, n_restarts: int, generator: torch.Generator
) -> Tensor:
    """Draw centres far from one another, the best of a few trials each, (R, k, E)."""
    n_trials = 2 + int(math.log(n_clusters))
    first = torch.randint(
        len(points), (n_restarts,), generator=generator, device=points.device
    )
    centers = [points[first]]
    squares = points.square().sum(dim=1, keepdim=True)
    nearest = _squared_distances(points, centers[0], squares)  # (N, R)
    for _ in range(1, n_clusters):
        totals = nearest.cumsum(dim=0, dtype=torch.float64)
        draws = torch.rand(
            n_trials,
            n_restarts,
            generator=generator,
            device=points.device,
            dtype=torch.float64,
        )
        found = torch.searchsorted(
            totals.T.contiguous(), (draws * totals[-1]).T.contiguous()
        )  # (R, trials)
        found = found.clamp_max(len(points) - 1)
        trials = points[found.flatten()]
        distances = _squared_distances(points, trials, squares)
        distances = distances.view(-1, n_restarts, n_trials)
        distances = torch.minimum(distances, nearest[:, :, None])
        best = distances.sum(dim=0).argmin(dim=1)  # (R,)
        every = torch.arange(n_restarts, device=points.device)
        centers.append(points[found[every, best]])
        nearest = distances[:, every, best]
    return torch.stack(centers, dim=1)


def _lloyd(points: Tensor, centers: Tensor) -> tuple[Tensor, Tensor]:
    """Return labels, (N, R), and the sum of squared distances by restart, (R,)."""
    n_restarts, n_clusters, n_dimensions = centers.shape
    tolerance = _TOLERANCE * float(points.var(dim=0).mean())
    for iteration in range(_MAX_ITERATIONS):
        labels, _ = _assign(points, centers)
        # One-hot products add in a fixed order, unlike atomic additions.
        members = torch.nn.functional.one_hot(labels, n_clusters).to(points.dtype)
        members = members.view(len(points), -1)  # (N, R k)
        counts = members.sum(dim=0).view(n_restarts, n_clusters, 1)
        sums = (members.T @ points).view(n_restarts, n_clusters, n_dimensions)
        moved = torch.where(counts > 0, sums / counts.clamp_min(1), centers)
        moves = (moved - centers).square().sum(dim=(1, 2))
        centers = moved
        if iteration % _CHECK_EVERY == 0 and bool((moves <= tolerance).all()):
            break
    labels, distances = _assign(points, centers)
    return labels, distances.sum(dim=0)


def _lloyd_on_cpu(
    points: Tensor, centers: Tensor
) -> tuple[NDArray[np.int64], Tensor, float]:
    """Return labels, (N,), centres and the sum of squared distances of one restart."""
    n_clusters = len(centers)
    tolerance = _TOLERANCE * float(points.var(dim=0).mean())
    blocks = points.split(max(1, _BLOCK_ENTRIES // n_clusters))
    labels = torch.empty(len(points), dtype=torch.int64)
    for _ in range(_MAX_ITERATIONS):
        squares = centers.square().sum(dim=1)
        for block, own in zip(blocks, labels.split(len(blocks[0])), strict=True):
            distances = torch.addmm(squares, block, centers.T, alpha=-2)
            # NumPy's is several times as fast.
            own.copy_(torch.from_numpy(distances.numpy().argmin(axis=1)))
        counts = torch.bincount(labels, minlength=n_clusters)[:, None]
        sums = torch.zeros_like(centers).index_add_(0, labels, points)
        moved = torch.where(counts > 0, sums / counts.clamp_min(1), centers)
        moves = float((moved - centers).square().sum())
        centers = moved
        if moves <= tolerance:
            break
    inertia = float((points - centers[labels]).square().sum())
    return labels.numpy(), centers, inertia


def _assign(points: Tensor, centers: Tensor) -> tuple[Tensor, Tensor]:
    """Return the nearest centre of each restart and its squared distance, (N, R)."""
    squares = points.square().sum(dim=1, keepdim=True)
    distances = _squared_distances(points, centers.flatten(0, 1), squares)
    smallest, labels = distances.view(len(points), *centers.shape[:2]).min(dim=2)
    return labels, smallest


def _squared_distances(points: Tensor, centers: Tensor, squares: Tensor) -> Tensor:
    """Return squared distances of all points to all centres, given those to 0."""
    both = squares + centers.square().sum(dim=1)
    return torch.addmm(both, points, centers.T, alpha=-2).clamp_min_(0)
