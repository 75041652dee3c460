"""Kill a training process at random moments and compare what it comes to.

``make crash-test`` makes 100 kills and writes a record. Each process is forked from
this one, so that it does not spend its life importing, trains with a checkpoint every
few milliseconds and is killed with SIGKILL, which nothing can catch. After every kill
the newest checkpoint must be intact and no older than it was before; after the last
kill of a run the training is left to finish, and its weights and history must be those
of a training that nobody disturbed, bit for bit.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from selfexpress.config import NetworkConfig, TrainConfig
from selfexpress.datasets.synthetic import make_subspaces
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.rows.sources import ArraySource
from selfexpress.training.checkpoints import Checkpoint, Checkpoints
from selfexpress.training.loop import train

CONFIG = TrainConfig(
    gamma=50.0, max_iter=150, batch_size=32, block_size=32, algorithm="two_pass"
)
MOST_KILLS_OF_A_RUN = 8
# Of a process to be killed, in terms of how long an undisturbed one takes.
LONGEST_LIFE = 0.6


@dataclass
class Tally:
    """What was seen.

    Attributes
    ----------
    kills, runs : int
        Processes killed, trainings finished after some of them.
    in_writing : int
        Kills that left a half-written file behind.
    steps : list of int
        Newest checkpoint at each kill, -1 for none yet.
    lost, different : int
        Checkpoints lost, runs that ended elsewhere: both must be 0.
    """

    kills: int = 0
    runs: int = 0
    in_writing: int = 0
    steps: list[int] = field(default_factory=list)
    lost: int = 0
    different: int = 0


def crash_test(n_kills: int, *, seed: int, folder: Path) -> Tally:
    """Kill ``n_kills`` training processes."""
    rng = np.random.default_rng(seed)
    tally = Tally()
    _train(folder / "loaded", seed)  # children find all that is loaded late
    start = time.monotonic()
    _finish(folder / "undisturbed", seed)
    longest = LONGEST_LIFE * (time.monotonic() - start)
    expected = _newest(folder / "undisturbed")
    while tally.kills < n_kills:
        place = folder / f"run{tally.runs}"
        wanted = int(rng.integers(1, MOST_KILLS_OF_A_RUN + 1))
        for _ in range(min(wanted, n_kills - tally.kills)):
            life = float(rng.uniform(0, longest))
            if not _kill_once(place, seed, life=life, to=tally):
                break
        _finish(place, seed)
        tally.runs += 1
        tally.different += not _same(_newest(place), expected)
    return tally


def _kill_once(place: Path, seed: int, *, life: float, to: Tally) -> bool:
    """Kill a training; return whether it was not yet at its end."""
    before = _newest(place)
    child = os.fork()
    if child == 0:
        _live(place, seed)
    time.sleep(life)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    was_killed = os.WIFSIGNALED(status)
    to.kills += was_killed
    names = [path.name for path in place.iterdir()] if place.is_dir() else []
    to.in_writing += any(re.fullmatch(r"\.[0-9a-f]{16}\..*", name) for name in names)
    step = -1 if (after := _newest(place)) is None else after.progress.step
    if before is not None and step < before.progress.step:
        to.lost += 1
    if was_killed:
        to.steps.append(step)
    return was_killed


def _finish(place: Path, seed: int) -> None:
    child = os.fork()
    if child == 0:
        _live(place, seed)
    _, status = os.waitpid(child, 0)
    assert status == 0, "a training that nobody kills comes to its end"


def _live(place: Path, seed: int) -> None:
    """Train in a child process, which ends here."""
    code = 1
    try:
        _train(place, seed)
        code = 0
    finally:
        os._exit(code)


def _train(place: Path, seed: int) -> None:
    sizes = {"dimension": 2, "n_features": 10, "n_samples": 40}
    rows = make_subspaces(3, **sizes, random_state=seed).X
    generator = torch.Generator().manual_seed(seed)
    network = SelfExpressiveNetwork(10, NetworkConfig((24,), 16), generator=generator)
    train(
        network,
        ArraySource(rows.astype(np.float32)),
        CONFIG,
        seed=seed,
        checkpoints=Checkpoints(place, seconds=0.003),
    )


def _newest(place: Path) -> Checkpoint | None:
    """Return the newest checkpoint; a damaged file would be an error here."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return Checkpoints(place).newest() if place.is_dir() else None


def _same(first: Checkpoint | None, second: Checkpoint | None) -> bool:
    """Say whether weights, optimiser and history are equal, bit for bit."""
    assert first is not None
    assert second is not None
    return first.tensors.keys() == second.tensors.keys() and all(
        torch.equal(tensor, second.tensors[name])
        for name, tensor in first.tensors.items()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", action="store_true", help="Write a record.")
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tally = crash_test(options.kills, seed=options.seed, folder=Path(folder))
    results: dict[str, Any] = {
        **vars(tally),
        "seconds": round(time.monotonic() - start, 1),
    }
    sys.stdout.write(f"{results}\n")
    if options.record:
        sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
        from reproduction.record import write_record

        config = {"kills": options.kills, "longest_life": LONGEST_LIFE}
        path = write_record("crash-test", results, config, seed=options.seed)
        sys.stdout.write(f"{path.name}\n")
    sys.exit(1 if tally.lost or tally.different else 0)


if __name__ == "__main__":
    main()
