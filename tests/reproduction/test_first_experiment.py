"""The paper's first synthetic experiment, with its network and its steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from reproduction.first_experiment import schedule_cells
from reproduction.runner import Context, with_seeds


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_coefficients_preserve_subspaces_for_seen_and_unseen_points(tmp_path):
    constant, _ = schedule_cells(False)
    context = Context(torch.device("cpu"), tmp_path)
    runs = [each.run(context).metrics for each in with_seeds([constant], 5)]
    last = [run["curve"][-1] for run in runs]
    assert np.mean([look["train"]["sre"] for look in last]) <= 0.12
    assert np.mean([look["unseen"]["sre"] for look in last]) <= 0.30
    assert all(look["train"]["accuracy"] == 1 for look in last)
