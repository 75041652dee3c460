from __future__ import annotations

import numpy as np
import torch
from scipy import sparse

from selfexpress.affinity.assignment import References, cluster_weights

REFERENCES = References(
    keys=torch.zeros(4, 2),
    coefficients=sparse.csr_array(
        np.array([[0, 1.0, 0, 0], [1.0, 0, 0, 0], [0, 0, 0, 1.0], [0, 0, 1.0, 0]])
    ),
    labels=np.array([0, 0, 1, 2]),
    n_clusters=3,
)


def test_weights_are_shares_of_the_similarity_by_hand():
    # Similarity 0.6 to reference 0 (cluster 0) and 0.8 to reference 2 (cluster 1).
    new = sparse.csr_array(np.array([[0, 3.0, 0, 4.0]]))
    weights = cluster_weights(new, REFERENCES)
    np.testing.assert_allclose(weights, [[0.6 / 1.4, 0.8 / 1.4, 0]], rtol=1e-6)


def test_a_row_like_no_reference_gets_the_clusters_shares():
    new = sparse.csr_array((1, 4))
    weights = cluster_weights(new, REFERENCES)
    np.testing.assert_allclose(weights, [[0.5, 0.25, 0.25]])


def test_an_opposite_row_is_no_neighbour():
    new = sparse.csr_array(np.array([[0, -1.0, 0, 0.1]]))
    weights = cluster_weights(new, REFERENCES)
    np.testing.assert_allclose(weights, [[0, 1, 0]])
