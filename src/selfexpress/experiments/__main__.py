"""Run experiments where the packages of the command line are missing.

    python -m selfexpress.experiments table1 --only n_samples=20,100 --device cuda

fills the records that ``selfexpress reproduce --show`` and ``--document`` then read.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from selfexpress.experiments.catalogue import cells_of, experiments
from selfexpress.experiments.cells import Context
from selfexpress.experiments.places import default_cache, default_records
from selfexpress.experiments.runner import Results, run_cells
from selfexpress.ops.devices import resolve_device

logger = logging.getLogger("selfexpress.experiments")


def main(arguments: list[str] | None = None) -> None:
    """Run the cells asked for and log a line about each."""
    options = _parse(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logger.setLevel(logging.INFO)
    cells = cells_of(
        experiments(options.names),
        is_quick=options.quick,
        n_seeds=options.seeds or (1 if options.quick else 3),
        only=options.only,
    )
    results = Results(options.records or default_records(options.quick))
    context = Context(resolve_device(options.device), options.cache or default_cache())
    progress = run_cells(
        cells,
        results,
        context,
        n_jobs=max(1, options.jobs),
        time_limit=options.time_limit,
    )
    logger.info("%s", progress)
    if progress.n_failed:
        sys.exit(1)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m selfexpress.experiments")
    parser.add_argument("names", nargs="+")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--records", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--time-limit", type=float)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
