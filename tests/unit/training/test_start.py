"""Where training starts."""

from __future__ import annotations

import math

import pytest
import torch
from problems import unit_data

from selfexpress.config import NetworkConfig
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.rows.sources import ArraySource
from selfexpress.training import start
from selfexpress.training.start import (
    choose_start,
    effective_dimension,
    start_alike,
)


def network_of(n_features, seed):
    generator = torch.Generator().manual_seed(seed)
    sizes = NetworkConfig((64, 64), 64)
    return SelfExpressiveNetwork(n_features, sizes, generator=generator)


def clustered_rows(seed, *, n_clusters=10, size=20, n_features=60):
    """Rows near directions that are almost orthogonal."""
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(n_clusters, n_features, generator=generator)
    noise = torch.randn(n_clusters * size, n_features, generator=generator)
    rows = centers.repeat_interleave(size, dim=0) + 0.5 * noise
    return rows / rows.norm(dim=1, keepdim=True)


@torch.no_grad()
def test_like_rows_express_a_row_at_the_start(seed):
    rows = clustered_rows(seed)
    network = network_of(60, seed)
    start_alike(network, ArraySource(rows))
    products = network.query_tower(rows) @ network.key_tower(rows).T
    is_used = (products.abs() > network.threshold).fill_diagonal_(False)
    assert is_used.sum(dim=1).float().median() == pytest.approx(10, abs=1)
    owner = torch.arange(len(rows)) // 20
    is_same = owner[:, None] == owner
    # By chance it would be a tenth.
    assert (is_used & is_same).sum() > 0.6 * is_used.sum()


@torch.no_grad()
def test_rows_that_are_not_looked_at_count_as_keys(seed, monkeypatch):
    """Ten of all keys are fewer in a part of them."""
    source = ArraySource(clustered_rows(seed))
    whole, part = network_of(60, seed), network_of(60, seed)
    start_alike(whole, source)
    monkeypatch.setattr(start, "_MAX_ROWS", 100)
    start_alike(part, source)
    products = whole.query_tower(source.take(torch.arange(200)))
    products = (products @ products.T).fill_diagonal_(0)
    n_used = [(products > n.threshold).sum(dim=1).median() for n in (whole, part)]
    assert n_used[1] == pytest.approx(int(n_used[0]), abs=4)


def test_towers_start_as_copies_that_share_nothing(seed):
    network = network_of(60, seed)
    before = network.query_tower[0].weight.detach().clone()
    start_alike(network, ArraySource(clustered_rows(seed)))
    scaled = math.sqrt(60) * before
    torch.testing.assert_close(network.query_tower[0].weight.detach(), scaled)
    pairs = zip(
        network.query_tower.parameters(), network.key_tower.parameters(), strict=True
    )
    for query, key in pairs:
        assert torch.equal(query, key)
        assert query.data_ptr() != key.data_ptr()


@pytest.mark.parametrize(
    ("n_rows", "n_features", "shift", "expected"),
    [
        (300, 60, 0.0, "alike"),
        (300, 60, 3.0, "random"),
        (300, 10, 0.0, "alike"),
        (300, 2, 0.0, "random"),
        (2000, 60, 0.0, "random"),
    ],
    ids=["wide", "a common direction", "narrow", "two dimensions", "many rows"],
)
def test_auto_looks_at_rows_and_the_dimensions_they_fill(
    n_rows, n_features, shift, expected, seed
):
    rows = unit_data(n_rows, n_features, seed=seed) + shift / math.sqrt(n_features)
    source = ArraySource(rows / rows.norm(dim=1, keepdim=True))
    assert choose_start("auto", source) == expected
    assert choose_start("random", source) == "random"


def test_effective_dimension_of_known_rows():
    assert effective_dimension(torch.eye(7)) == pytest.approx(7)
    assert effective_dimension(torch.eye(7)[:1].expand(5, 7)) == pytest.approx(1)
    assert effective_dimension(torch.zeros(5, 7)) == 0
    half = torch.cat([torch.eye(7), torch.zeros(7, 7)])
    assert effective_dimension(half) == pytest.approx(7)


def test_wide_rows_need_no_matrix_of_their_width():
    """One would take 160 GB here."""
    rows = torch.zeros(3, 200_000)
    rows[:, :3] = torch.eye(3)
    assert effective_dimension(rows) == pytest.approx(3)


def test_one_row_and_few_rows_can_be_started_with(seed):
    for n_rows in (1, 2, 5):
        network = network_of(60, seed)
        start_alike(network, ArraySource(clustered_rows(seed)[:n_rows]))
        assert torch.isfinite(network.threshold)
