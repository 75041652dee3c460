from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

# One thread: small problems spend their time in thread hand-over otherwise.
torch.set_num_threads(1)


def _seeds() -> list[int]:
    """Read SELFEXPRESS_TEST_SEEDS: one seed ("3") or a range ("0-99")."""
    text = os.environ.get("SELFEXPRESS_TEST_SEEDS", "0")
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


@pytest.fixture(params=_seeds(), ids=lambda seed: f"seed{seed}")
def seed(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Folder of the real data sets; tests that ask for it are skipped without one."""
    folder = os.environ.get("SELFEXPRESS_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("SELFEXPRESS_DATA does not name a folder with the real data sets")
    return Path(folder)
