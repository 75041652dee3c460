from __future__ import annotations

import numpy as np
import pytest
from compare import assert_same_partition
from sklearn.cluster import SpectralClustering
from sklearn.datasets import make_blobs
from sklearn.manifold import spectral_embedding
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import kneighbors_graph

from reproduction import methods
from reproduction.methods import METHODS, make_method
from selfexpress import make_subspaces
from selfexpress.affinity.graph import symmetrized
from selfexpress.metrics import clustering_accuracy
from selfexpress.spectral.clusters import spectral_clusters

SETTINGS = {
    "k-means": {},
    "spectral": {},
    "ssc-omp": {"n_nonzero": 4, "normalize": True},
    "ensc": {"gamma": 50.0, "l1_ratio": 0.9, "affinity": "symmetric"},
    "esc": {"n_exemplars": 40, "n_neighbors": 9},
}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_gives_labels_through_one_interface(name):
    data = make_subspaces(3, dimension=4, n_features=20, n_samples=50, random_state=0)
    method = make_method(name, 3, seed=0, **SETTINGS[name])
    labels = method.fit_predict(data.X)
    assert (labels == method.labels_).all()
    assert set(np.unique(labels)) <= {0, 1, 2}
    if name not in ("k-means", "spectral"):  # which do not know about subspaces
        assert clustering_accuracy(labels, data.labels) >= 0.98


def test_spectral_clustering_agrees_with_that_of_scikit_learn():
    X, truth = make_blobs(300, centers=4, cluster_std=1.0, random_state=0)
    ours = make_method("spectral", 4, seed=0, n_neighbors=5).fit_predict(X)
    theirs = SpectralClustering(
        4, affinity="nearest_neighbors", n_neighbors=5, random_state=0
    )
    assert_same_partition(theirs.fit_predict(X), ours)
    assert 0.5 < adjusted_rand_score(truth, ours) < 1  # neither easy nor hopeless
    # Rows of unit length, as in the other methods, give other clusters.
    directed = kneighbors_graph(X, 5, include_self=True)
    scaled = spectral_clusters(symmetrized(directed), 4, n_init=10, seed=0).labels
    assert adjusted_rand_score(scaled, ours) < 1


def test_rows_of_the_embedding_are_divided_by_the_roots_of_degrees(monkeypatch):
    """As scikit-learn's are, up to a factor and to signs."""
    # A dense group, whose nodes have high degrees, and a loose one.
    generator = np.random.default_rng(0)
    X = np.vstack([generator.normal(size=(80, 2)), generator.normal(3, 4, (40, 2))])
    seen = []

    def keep(embedding, *_, **__):
        seen.append(embedding)
        return np.zeros(len(embedding), dtype=np.int64)

    monkeypatch.setattr(methods, "k_means_labels", keep)
    make_method("spectral", 3, seed=0, n_neighbors=8).fit(X)
    graph = symmetrized(kneighbors_graph(X, 8, include_self=True))
    assert graph.sum(axis=1).max() > 2 * graph.sum(axis=1).min()
    theirs = spectral_embedding(graph.toarray(), n_components=3, drop_first=False)
    (ours,) = seen
    factor = np.linalg.norm(ours[:, 0]) / np.linalg.norm(theirs[:, 0])
    np.testing.assert_allclose(np.abs(ours), factor * np.abs(theirs), atol=1e-6)
