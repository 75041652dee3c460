"""How tests start other processes."""

from __future__ import annotations

import os
import socket
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
SECONDS = 240


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(**more: str) -> dict[str, str]:
    paths = [str(TESTS.parent / "src"), str(TESTS)]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        **more,
    }
