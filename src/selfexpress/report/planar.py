"""A spectral embedding drawn on a plane.

Shapes: N samples, E dimensions of the embedding.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

Floats = NDArray[np.floating[Any]]

# t-SNE places these; its cost grows too fast to place every point of a large set.
_N_ANCHORS = 2000
_N_NEAREST = 3
_LEAST_FOR_TSNE = 8
_N_STEPS = 500
_BLUR = 1e-3
# Of scikit-learn's approximation: larger is faster and coarser.
_ANGLE = 0.7


def planar_map(embedding: Floats, *, seed: int = 0) -> NDArray[np.float64]:
    """Return points of the plane that are near when their embeddings are, (N, 2).

    t-SNE places up to 2,000 points; each of the others goes between the nearest of
    these in the embedding, nearer to the nearer. Who is next to whom means much; how
    large or far apart groups are means little.

    Parameters
    ----------
    embedding : ndarray of shape (N, E)
    seed : int
        Of the choice of the points that t-SNE places.

    Returns
    -------
    ndarray of shape (N, 2)
        Between 0 and 1, one scale for both directions.
    """
    points = np.asarray(embedding, dtype=np.float64)
    rng = np.random.default_rng(seed)
    n_anchors = min(_N_ANCHORS, len(points))
    index = np.sort(rng.permutation(len(points))[:n_anchors])
    anchors = _tsne(points[index], seed)
    plane = anchors if n_anchors == len(points) else _between(points, index, anchors)
    low, high = plane.min(axis=0), plane.max(axis=0)
    side = float((high - low).max()) or 1.0
    centred: NDArray[np.float64] = (plane - (low + high) / 2) / side + 0.5
    return centred


def _tsne(points: Floats, seed: int) -> Floats:
    from sklearn.manifold import TSNE

    if len(points) < _LEAST_FOR_TSNE:
        return _principal_axes(points)
    # Components of a graph that fell apart are single points of the embedding. Points
    # that start in one place never part; apart by a hair, they become a round patch.
    rng = np.random.default_rng(seed)
    blurred = points + _BLUR * rng.standard_normal(points.shape)
    start = _principal_axes(blurred)
    start /= float(start[:, 0].std()) or 1.0
    start += 0.05 * rng.standard_normal(start.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tsne = TSNE(
            perplexity=min(30.0, (len(points) - 1) / 3),
            init=(1e-4 * start).astype(np.float32),
            max_iter=_N_STEPS,
            angle=_ANGLE,
            random_state=seed,
        )
        return np.asarray(tsne.fit_transform(blurred), dtype=np.float64)


def _principal_axes(points: Floats) -> Floats:
    centred = points - points.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    plane = np.zeros((len(points), 2))
    axes = left[:, :2] * sizes[:2]
    plane[:, : axes.shape[1]] = axes
    return plane


def _between(points: Floats, index: NDArray[np.intp], anchors: Floats) -> Floats:
    """Place points at the weighted mean of their nearest anchors."""
    distance, nearest = cKDTree(points[index]).query(points, k=_N_NEAREST)
    weights = 1 / (distance + 1e-9)  # (N, _N_NEAREST)
    weights /= weights.sum(axis=1, keepdims=True)
    plane: Floats = np.einsum("nk,nkd->nd", weights, anchors[nearest])
    return plane
