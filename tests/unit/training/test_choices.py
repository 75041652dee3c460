from __future__ import annotations

import numpy as np
import pytest
import torch

from selfexpress.config import NetworkConfig, TrainConfig
from selfexpress.errors import IgnoredSettingWarning
from selfexpress.rows.sources import ArraySource
from selfexpress.training import choices
from selfexpress.training.choices import decide

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


def test_many_processes_take_the_algorithm_of_parted_sums(monkeypatch):
    monkeypatch.setattr(choices.distributed, "n_ranks", lambda: 2)
    for algorithm in ("auto", "two_pass"):
        assert choose(algorithm, 1_000) == "two_pass"
    with pytest.warns(IgnoredSettingWarning, match="algorithm='naive' needs a single"):
        assert choose("naive", 1_000) == "two_pass"
