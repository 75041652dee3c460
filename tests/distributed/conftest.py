from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from distributed.launching import SECONDS, TESTS, environment, free_port


def run_ranks(n_ranks: int, folder: Path) -> list[dict[str, np.ndarray]]:
    """Run the worker in several processes; return what each of them wrote."""
    port = str(free_port())
    command = [sys.executable, str(TESTS / "distributed" / "worker.py"), str(folder)]
    started = [
        subprocess.Popen(
            command,
            env=environment(
                RANK=str(rank),
                LOCAL_RANK=str(rank),
                WORLD_SIZE=str(n_ranks),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=port,
            ),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(n_ranks)
    ]
    try:
        for process in started:
            _, errors = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, errors
    finally:
        for process in started:
            process.kill()
    results = []
    for rank in range(n_ranks):
        with np.load(folder / f"rank{rank}.npz") as archive:
            results.append(dict(archive))
    return results


@pytest.fixture(scope="session")
def alone(tmp_path_factory) -> dict[str, np.ndarray]:
    return run_ranks(1, tmp_path_factory.mktemp("alone"))[0]


@pytest.fixture(scope="session", params=[2, 4])
def ranks(request, tmp_path_factory) -> list[dict[str, np.ndarray]]:
    return run_ranks(request.param, tmp_path_factory.mktemp(f"ranks{request.param}"))
