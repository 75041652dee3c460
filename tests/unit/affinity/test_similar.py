"""The rows most like each row, and their graph, against all products."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from problems import unit_data

from selfexpress.affinity import similar
from selfexpress.affinity.similar import (
    joined_candidates,
    neighbor_graph,
    similar_rows,
)


@pytest.fixture
def rows(seed):
    return unit_data(50, 6, seed=seed)


def by_dense_blocks(rows, references, *, n_similar, own=None):
    """As on a GPU."""
    own = torch.full((len(rows),), -1) if own is None else own
    return similar._by_dense_blocks(rows, references, n_similar, own)


@pytest.mark.parametrize("search", [similar_rows, by_dense_blocks])
def test_rows_found_are_those_of_largest_absolute_cosine(search, rows):
    own = torch.arange(20, 50)
    found = search(rows[20:], rows, n_similar=7, own=own).sort(dim=1).values
    cosines = (rows[20:] @ rows.T).abs()
    cosines[torch.arange(30), own] = -1
    assert torch.equal(found, cosines.topk(7, dim=1).indices.sort(dim=1).values)


@pytest.mark.parametrize("search", [similar_rows, by_dense_blocks])
def test_a_row_that_is_no_reference_is_like_the_reference_equal_to_it(search, rows):
    assert torch.equal(search(-rows[:9], rows, n_similar=1)[:, 0], torch.arange(9))


def test_more_rows_than_there_are_are_all_others(rows):
    own = torch.arange(5)
    found = similar_rows(rows[:5], rows[:5], n_similar=10, own=own)
    for place in range(5):
        others = sorted({*range(5)} - {place})
        assert found[place][found[place] >= 0].sort().values.tolist() == others


def test_joined_candidates_are_each_there_once():
    first = torch.tensor([[3, 1, -1], [0, 2, 5]])
    second = torch.tensor([[1, 7], [-1, -1]])
    joined = joined_candidates(first, second)
    assert [sorted(row[row >= 0].tolist()) for row in joined] == [[1, 3, 7], [0, 2, 5]]
    assert joined.shape == (2, 5)


def test_the_graph_joins_rows_to_those_of_largest_cosine(rows):
    graph = neighbor_graph(rows, n_neighbors=4).toarray()
    cosines = (rows @ rows.T).numpy()
    np.fill_diagonal(cosines, -1)
    expected = np.zeros_like(cosines)
    # The search looks among those of largest absolute cosine, twice as many.
    sizes = np.abs(cosines)
    np.fill_diagonal(sizes, -1)
    for place, (cosine, size) in enumerate(zip(cosines, sizes, strict=True)):
        near = np.argsort(-size)[:8]
        best = near[np.argsort(-cosine[near])[:4]]
        expected[place, best] = np.maximum(cosine[best], 0)
    np.testing.assert_allclose(graph, (expected + expected.T) / 2, rtol=1e-5)
    assert not graph.diagonal().any()
