"""A fit with checkpoints in which a rank may die once; started by torchrun.

torchrun --nproc-per-node 2 elastic_worker.py FOLDER [STEP [SIGNAL]]

The last rank gets the signal after so many steps, SIGKILL unless named.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import torch

from selfexpress import SENet, distributed, make_subspaces
from selfexpress.training.callbacks import Callback
from selfexpress.training.checkpoints import Checkpoints

MAX_ITER = 120


class DyingOnce(Callback):
    """Sends the last rank a signal after some steps, unless it has had one before."""

    def __init__(self, folder: Path, step: int, number: int) -> None:
        self.folder = folder
        self.step = step
        self.number = number
        self.started_at = -1

    def on_train_begin(self, state) -> None:
        self.started_at = state.step

    def on_step_end(self, state) -> None:
        # So that time for checkpoints passes, however fast the machine is.
        time.sleep(0.005)
        is_last_rank = distributed.rank() == distributed.n_ranks() - 1
        marker = self.folder / "died"
        if is_last_rank and state.step == self.step and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), self.number)


def main(folder: Path, step: int = -1, name: str = "SIGKILL") -> None:
    torch.set_num_threads(1)
    # Who is killed has had checkpoints before; who is asked to leave writes one.
    Checkpoints.__init__.__kwdefaults__["seconds"] = 0.05 if name == "SIGKILL" else 1e9
    data = make_subspaces(3, dimension=2, n_features=30, n_samples=40, random_state=0)
    dying = DyingOnce(folder, step, signal.Signals[name])
    with distributed.process_group():
        model = SENet(
            3,
            refine=None,
            hidden_sizes=(64,),
            n_embedding=64,
            max_iter=MAX_ITER,
            n_train_samples=90,
            batch_size=50,
            affinity="symmetric",
            gamma=200.0,
            learning_rate=1e-3,
            n_eigenvectors=None,
            checkpoint=folder / "checkpoints",
            callbacks=[dying],
            random_state=0,
            device="cpu",
        ).fit(data.X)
        if distributed.is_main():
            found = {
                "labels": model.labels_.tolist(),
                "objective": model.history_["objective"].tolist(),
                "started_at": dying.started_at,
            }
            (folder / "result.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:3]), *sys.argv[3:])
