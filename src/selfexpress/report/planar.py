"""A spectral embedding drawn on a plane.

Shapes: N samples, E dimensions of the embedding.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    plane = _tsne(points[index], seed)
    if n_anchors < len(points):
        from sklearn.neighbors import KNeighborsRegressor

        between = KNeighborsRegressor(_N_NEAREST, weights="distance")
        plane = between.fit(points[index], plane).predict(points)
    low, high = plane.min(axis=0), plane.max(axis=0)
    side = float((high - low).max()) or 1.0
    centred: NDArray[np.float64] = (plane - (low + high) / 2) / side + 0.5
    return centred


def _tsne(points: Floats, seed: int) -> Floats:
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    n_samples, n_dimensions = points.shape
    if n_samples < _LEAST_FOR_TSNE:
        return np.pad(points[:, :2], ((0, 0), (0, max(0, 2 - n_dimensions))))
    # Components of a graph that fell apart are single points of the embedding. Points
    # that start in one place never part; apart by a hair, they become a round patch.
    rng = np.random.default_rng(seed)
    # On a busy machine threads spend most of its short steps waiting for one another.
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        tsne = TSNE(
            perplexity=min(30.0, (n_samples - 1) / 3),
            init="pca" if n_dimensions > 1 else "random",
            max_iter=_N_STEPS,
            angle=_ANGLE,
            random_state=seed,
        )
        blurred = points + _BLUR * rng.standard_normal(points.shape)
        return np.asarray(tsne.fit_transform(blurred), dtype=np.float64)
