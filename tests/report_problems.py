"""Models with fitted attributes set by hand, for tests of the report."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from selfexpress import SENet


def fitted_model(*, n_each: int = 12, n_clusters: int = 3, seed: int = 0) -> SENet:
    """Return a SENet as after a fit on ``n_clusters`` groups of ``n_each`` samples."""
    rng = np.random.default_rng(seed)
    n_samples = n_each * n_clusters
    labels = rng.permutation(np.repeat(np.arange(n_clusters), n_each))
    same = labels[:, None] == labels[None, :]
    values = rng.normal(size=same.shape) * same * (rng.uniform(size=same.shape) < 0.6)
    np.fill_diagonal(values, 0)
    graph = np.abs(values) + np.abs(values.T)
    embedding = np.eye(n_clusters)[labels] + 0.1 * rng.normal(
        size=(n_samples, n_clusters)
    )
    model = SENet(n_clusters, gamma=77.0, random_state=seed)
    model.labels_ = labels
    model.coefficients_ = sparse.csr_array(values.astype(np.float32))
    model.affinity_matrix_ = sparse.csr_array(graph.astype(np.float32))
    model.embedding_ = embedding / np.linalg.norm(embedding, axis=1, keepdims=True)
    model.eigenvalues_ = np.linspace(0, 0.2, n_clusters)
    model.history_ = {
        "objective": 5 + 10 * np.exp(-np.arange(60) / 10),
        "reconstruction": np.linspace(1, 0.1, 60),
        "penalty": np.linspace(0.5, 3, 60),
        "learning_rate": np.linspace(1e-3, 0, 60),
        "threshold": np.linspace(0, 0.2, 60),
    }
    model.timings_ = {"training": 3.25, "coefficients": 0.5, "spectral": 0.04}
    certificate = {"violation": 0.00984, "excess": 0.012, "n_judged": 100}
    model.settings_ = {"certificate": certificate}
    model.n_features_in_ = 16
    model.n_iter_ = 60
    return model
