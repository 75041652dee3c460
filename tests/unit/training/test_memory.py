from __future__ import annotations

import numpy as np
import pytest
import torch

from selfexpress.config import NetworkConfig, TrainConfig
from selfexpress.errors import IgnoredSettingWarning
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.rows.sources import ArraySource, RowBlock
from selfexpress.training import choices
from selfexpress.training.choices import decide
from selfexpress.training.objective import naive_gradient, naive_step_bytes

CPU = torch.device("cpu")
NETWORK = NetworkConfig((64,), 32)


def choose(algorithm, n_samples):
    source = ArraySource(np.broadcast_to(np.float32(0), (n_samples, 10)))
    return decide(TrainConfig(algorithm=algorithm), NETWORK, source, CPU).algorithm


def test_auto_is_naive_until_its_graph_does_not_fit(monkeypatch):
    monkeypatch.setattr(choices, "free_bytes", lambda device: 2**30)
    assert choose("auto", 1_000) == "naive"
    assert choose("auto", 1_000_000) == "two_pass"


@pytest.mark.parametrize("algorithm", ["naive", "two_pass"])
def test_an_explicit_algorithm_is_kept(algorithm, monkeypatch):
    monkeypatch.setattr(choices, "free_bytes", lambda device: 0)
    assert choose(algorithm, 10**9) == algorithm


@pytest.mark.parametrize("algorithm", ["auto", "two_pass"])
def test_many_processes_take_the_algorithm_of_parted_sums(algorithm, monkeypatch):
    monkeypatch.setattr(choices.distributed, "n_ranks", lambda: 2)
    assert choose(algorithm, 1_000) == "two_pass"


def test_many_processes_say_what_they_ignore(monkeypatch):
    monkeypatch.setattr(choices.distributed, "n_ranks", lambda: 2)
    with pytest.warns(IgnoredSettingWarning, match="algorithm='naive' needs a single"):
        assert choose("naive", 1_000) == "two_pass"


def test_estimate_covers_what_the_graph_of_a_step_really_holds():
    """Saved tensors of a naive step, counted by autograd itself."""
    network = SelfExpressiveNetwork(10, NETWORK)
    rows = torch.randn(500, 10)
    saved = {}

    def pack(tensor):
        saved[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    train = TrainConfig(batch_size=100)
    batch = RowBlock(rows[:100], torch.arange(100))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        naive_gradient(network, batch, ArraySource(rows), train)
    estimate = naive_step_bytes(500, 10, network=NETWORK, train=train)
    assert 0.5 * sum(saved.values()) < estimate < 3 * sum(saved.values())
