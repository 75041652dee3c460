from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from problems import small_network, unit_data
from scipy import sparse

from selfexpress.affinity.coefficients import embed_keys, sparse_coefficients
from selfexpress.affinity.maximum_inner_product import recall_of, searched_coefficients
from selfexpress.errors import ConfigError
from selfexpress.rows.sources import ArraySource


def problem(seed, *, n_samples, threshold=0.3):
    source = ArraySource(unit_data(n_samples, 5, seed=seed))
    network = small_network(5, seed=seed, threshold=threshold).float()
    return network, source, embed_keys(network, source, block_size=64)


@pytest.mark.parametrize("threshold", [0.3, 0.0, -0.2])
def test_looking_into_all_lists_finds_what_all_pairs_give(seed, threshold):
    pytest.importorskip("faiss")
    network, source, keys = problem(seed, n_samples=300, threshold=threshold)
    exact = sparse_coefficients(network, source, keys, n_nonzero=7, exclude_self=True)
    result = searched_coefficients(
        network, source, keys, n_nonzero=7, least_recall=1.1, seed=seed
    )
    assert result.n_probes == result.n_lists > 1
    assert result.recall == 1
    np.testing.assert_allclose(
        result.coefficients.toarray(), exact.toarray(), rtol=1e-4, atol=1e-6
    )


def test_the_recall_that_is_reported_is_that_of_all_rows(seed):
    pytest.importorskip("faiss")
    network, source, keys = problem(seed, n_samples=2000)
    exact = sparse_coefficients(network, source, keys, n_nonzero=10, exclude_self=True)
    result = searched_coefficients(
        network,
        source,
        keys,
        n_nonzero=10,
        least_recall=0.6,
        n_measured=1000,
        seed=seed,
    )
    assert result.recall >= 0.6
    assert abs(recall_of(result.coefficients, exact) - result.recall) < 0.02
    assert np.diff(result.coefficients.indptr).max() <= 10
    assert not result.coefficients.diagonal().any()


def test_few_keys_are_all_looked_into_and_the_recall_says_so(seed):
    pytest.importorskip("faiss")
    network, source, keys = problem(seed, n_samples=50)
    result = searched_coefficients(network, source, keys, n_nonzero=5, seed=seed)
    assert result.n_probes == result.n_lists == 1
    assert result.recall == 1


def test_recall_is_the_share_of_entries_that_were_found():
    exact = sparse.csr_array([[1.0, -2.0, 0.0], [0.0, 3.0, 4.0]])
    found = sparse.csr_array([[5.0, 0.0, 1.0], [0.0, 3.0, 0.0]])
    assert recall_of(found, exact) == 0.5
    assert recall_of(found, sparse.csr_array((2, 3))) == 1


def test_without_faiss_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    network, source, keys = problem(0, n_samples=100)
    with pytest.raises(ConfigError, match=r"selfexpress\[faiss\]"):
        searched_coefficients(network, source, keys, n_nonzero=3)
    assert torch.isfinite(keys).all()
