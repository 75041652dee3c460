"""No process and no partial file stays behind, whatever ends a run side by side."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "sleeping_cells.py"


def wait_for(happens: Callable[[], bool], *, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not happens() and time.monotonic() < end:
        time.sleep(0.05)
    return happens()


def runs(pid: int) -> bool:
    """Tell whether a process is there and no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    ("number", "to_worker", "code", "message"),
    [
        (signal.SIGINT, False, None, "KeyboardInterrupt"),
        (signal.SIGTERM, False, -signal.SIGTERM, ""),
        (signal.SIGKILL, False, -signal.SIGKILL, ""),
        (signal.SIGKILL, True, 1, "go on with fewer --jobs"),
    ],
)
def test_a_run_that_is_ended_leaves_no_process_behind(
    number, to_worker, code, message, tmp_path
):
    process = subprocess.Popen(
        [sys.executable, SCRIPT, tmp_path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    marks = tmp_path / "processes"
    workers: list[int] = []
    try:
        assert wait_for(lambda: len([*marks.glob("*")]) == 2, seconds=120)
        workers += (int(mark.name) for mark in marks.iterdir())
        assert all(map(runs, workers))
        os.kill(workers[0] if to_worker else process.pid, number)
        _, err = process.communicate(timeout=30)
        assert wait_for(lambda: not any(map(runs, workers)), seconds=30)
    finally:
        for pid in filter(runs, [process.pid, *workers]):
            os.kill(pid, signal.SIGKILL)
        process.communicate()
    if code is not None:
        assert process.returncode == code
    assert message in err
    if not to_worker:
        assert [*(tmp_path / "results").iterdir()] == []
    # What was finished is on the disk.
    assert len((tmp_path / "sleep.jsonl").read_text().splitlines()) == 1
