from __future__ import annotations

import numpy as np
import torch

from selfexpress.affinity.assignment import References, cluster_weights
from selfexpress.affinity.sparse_rows import SparseRows

REFERENCES = References(
    keys=torch.zeros(4, 2), labels=np.array([0, 0, 1, 2]), n_clusters=3
)


def expressed(columns, values):
    return SparseRows(torch.tensor([columns]), torch.tensor([values]), 4)


def test_weights_are_shares_of_the_size_of_coefficients_by_hand():
    new = expressed([3, 0, 1], [-4.0, 1.0, 3.0])
    np.testing.assert_allclose(cluster_weights(new, REFERENCES), [[0.5, 0, 0.5]])


def test_a_row_that_no_reference_expresses_gets_the_clusters_shares():
    new = expressed([0, 0], [0.0, 0.0])
    np.testing.assert_allclose(cluster_weights(new, REFERENCES), [[0.5, 0.25, 0.25]])


def test_a_cluster_without_references_gets_nothing():
    references = References(np.array([0, 2]), n_clusters=4, keys=torch.zeros(2, 2))
    new = SparseRows(torch.tensor([[0, 1]]), torch.tensor([[1.0, 3.0]]), 2)
    np.testing.assert_allclose(cluster_weights(new, references), [[0.25, 0, 0.75, 0]])
