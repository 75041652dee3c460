from __future__ import annotations

import numpy as np
import pytest
import torch
from problems import small_network, unit_data

from selfexpress.affinity import coefficients as module
from selfexpress.affinity.coefficients import embed_keys, sparse_coefficients
from selfexpress.rows.sources import ArraySource


@pytest.fixture
def problem(seed):
    rows = unit_data(30, 5, seed=seed)
    network = small_network(5, seed=seed)
    source = ArraySource(rows, dtype=torch.float64)
    queries, keys = network.query_tower(rows), network.key_tower(rows)
    dense = network.coefficients(queries, keys).detach().numpy()
    return network, source, dense


# One row at a time, a ragged last batch, all rows at once.
@pytest.mark.parametrize("batch_entries", [30, 210, 10**6])
def test_all_entries_but_the_diagonal_are_kept(problem, batch_entries, monkeypatch):
    monkeypatch.setitem(module._BATCH_ENTRIES, "cpu", batch_entries)
    network, source, dense = problem
    keys = embed_keys(network, source, block_size=7)
    actual = sparse_coefficients(network, source, keys, n_nonzero=30, exclude_self=True)
    np.fill_diagonal(dense, 0)
    np.testing.assert_allclose(actual.toarray(), dense, rtol=1e-6, atol=1e-9)
    assert actual.nnz == np.count_nonzero(actual.toarray())
    assert actual.has_sorted_indices


def test_the_largest_in_size_are_kept_of_each_row(problem):
    network, source, dense = problem
    keys = embed_keys(network, source, block_size=30)
    actual = sparse_coefficients(network, source, keys, n_nonzero=4, exclude_self=True)
    np.fill_diagonal(dense, 0)
    for row, kept in zip(dense, actual.toarray(), strict=True):
        largest = np.argsort(-np.abs(row))[:4]
        expected = np.zeros_like(row)
        expected[largest] = row[largest]
        np.testing.assert_allclose(kept, expected, rtol=1e-6)


def test_other_rows_may_meet_their_own_position(problem):
    network, source, dense = problem
    keys = embed_keys(network, source, block_size=30)
    actual = sparse_coefficients(
        network, source, keys, n_nonzero=30, exclude_self=False
    )
    np.testing.assert_allclose(actual.diagonal(), dense.diagonal(), rtol=1e-6)
