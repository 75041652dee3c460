"""Connected components of a graph."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from selfexpress.ops import sparse as sparse_ops
from selfexpress.ops.sparse import component_of_nodes


def graph_of(pairs, n_nodes):
    """Join pairs of nodes in both directions."""
    row, column = np.array(pairs, dtype=int).reshape(-1, 2).T
    directed = sparse.coo_array((np.ones(len(row)), (row, column)), (n_nodes, n_nodes))
    return sparse.csr_array(directed + directed.T, dtype=np.float32)


@pytest.mark.parametrize("mean_degree", [0.5, 1.5, 4.0, 12.0])
def test_components_are_those_of_a_full_search(mean_degree, seed):
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, 300, (int(150 * mean_degree), 2))
    graph = graph_of(pairs, 300)
    expected = connected_components(graph, directed=False)[1]
    np.testing.assert_array_equal(component_of_nodes(graph), expected)


def test_one_piece_needs_no_full_search(monkeypatch, seed):
    pairs = np.random.default_rng(seed).integers(0, 300, (3000, 2))
    monkeypatch.setattr(sparse_ops, "connected_components", None)
    assert not component_of_nodes(graph_of(pairs, 300)).any()


def test_a_long_path_is_one_piece():
    """More steps than are taken to see it at once."""
    path = [(node, node + 1) for node in range(499)]
    assert not component_of_nodes(graph_of(path, 500)).any()


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [([], [0, 1, 2]), ([(1, 2)], [0, 1, 1]), ([(0, 2)], [0, 1, 0])],
)
def test_isolated_nodes_are_components(pairs, expected):
    assert component_of_nodes(graph_of(pairs, 3)).tolist() == expected


def test_weights_too_small_for_a_sum_still_join():
    """A step weighs nothing where weights vanish; the full search goes by edges."""
    graph = graph_of([(0, 1)], 2)
    graph.data[:] = 0
    assert component_of_nodes(graph).tolist() == [0, 0]
