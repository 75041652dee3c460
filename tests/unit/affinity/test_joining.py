from __future__ import annotations

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from selfexpress.affinity.joining import join_components


def pieces():
    """Four pairs of rows; pairs 0 and 1 point alike, and so do 2 and 3."""
    angles = np.deg2rad([0, 1, 5, 6, 90, 91, 95, 96])
    rows = torch.tensor(np.column_stack([np.cos(angles), np.sin(angles)]))
    pairs = sparse.block_diag([np.array([[0.0, 1], [1, 0]])] * 4, format="csr")
    return sparse.csr_array(pairs), rows.float()


def test_pieces_are_joined_to_those_most_like_them():
    affinity, rows = pieces()
    joined = join_components(affinity, rows, n_clusters=2)
    dense = joined.toarray()
    assert connected_components(joined)[0] <= 2
    np.testing.assert_array_equal(dense, dense.T)
    # Strong edges stay, weak ones are weak and follow the angles.
    assert dense[0, 1] == 1
    assert 0 < dense[1, 2] < 0.02
    assert dense[:4, 4:].sum() < 0.1 * dense[:2, 2:4].sum()


def test_a_graph_of_few_pieces_stays_as_it_is():
    affinity, rows = pieces()
    assert join_components(affinity, rows, n_clusters=4) is affinity
