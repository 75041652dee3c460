"""The paper's first synthetic experiment, by the benchmark that records it."""

from __future__ import annotations

import numpy as np
import pytest

from reproduction.benchmarks import first_experiment as benchmark


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_coefficients_preserve_subspaces_for_seen_and_unseen_points():
    settings = {**benchmark.SETTINGS, "schedule": "constant"}
    runs = [benchmark.run(seed, settings) for seed in range(5)]
    means = {name: np.mean([run[name] for run in runs]) for name in runs[0]}
    assert means["sre"] <= 0.12
    assert means["acc"] == 1
    assert means["sre_unseen"] <= 0.30
