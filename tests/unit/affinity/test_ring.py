from __future__ import annotations

import numpy as np
import torch
from problems import small_network, unit_data

from selfexpress.affinity.coefficients import embed_keys, sparse_coefficients
from selfexpress.affinity.ring import ring_coefficients
from selfexpress.rows.sources import ArraySource


def test_in_one_process_the_ring_gives_what_all_keys_at_once_give(seed):
    source = ArraySource(unit_data(50, 5, seed=seed), dtype=torch.float64)
    network = small_network(5, seed=seed)
    keys = embed_keys(network, source, block_size=16)
    found = ring_coefficients(network, source, keys, n_nonzero=6)
    exact = sparse_coefficients(network, source, keys, n_nonzero=6, exclude_self=True)
    np.testing.assert_array_equal(found.toarray(), exact.toarray())
    assert found.has_sorted_indices
