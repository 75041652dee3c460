"""Run cells that never end side by side, to be interrupted: see test_side_by_side."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from reproduction.cells import Cell, Context, Outcome
from reproduction.runner import Results, run_cells
from selfexpress.errors import SelfExpressError
from selfexpress.files.atomic import replacing


@dataclass(frozen=True, kw_only=True)
class Sleep(Cell):
    """Says which process runs it, and sleeps; that of seed 0 ends at once."""

    task: ClassVar[str] = "sleep"

    def label(self) -> str:
        return ""

    def run(self, context: Context) -> Outcome:
        if self.seed:
            context.cache.mkdir(exist_ok=True)
            results = context.cache.with_name("results")
            results.mkdir(exist_ok=True)
            with replacing(results / f"{os.getpid()}.npy") as partial:
                partial.touch()
                (context.cache / str(os.getpid())).touch()
                time.sleep(600)
        return Outcome({"slept": 1.0}, {})


def main() -> None:
    # A shell may have told its background jobs to ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    folder = Path(sys.argv[1])
    context = Context(torch.device("cpu"), folder / "processes")
    cells = [Sleep(seed=seed) for seed in range(4)]
    try:
        run_cells(cells, Results(folder), context, n_jobs=2)
    except SelfExpressError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
