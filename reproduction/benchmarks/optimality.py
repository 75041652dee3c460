"""SENet comes as near to the optimum of EnSC as it is given steps.

The paper's second synthetic experiment: 5 subspaces of dimension 6 in R^9, gamma 50,
l1_ratio 0.9, the paper's network. For every number of points and of steps, the gap of
the network's objective to the optimum, which the exact solver certifies.

    python benchmarks/bench_optimality.py --points 20 100 200 --steps 4000 20000 100000
    python benchmarks/bench_optimality.py --points 1000 --batch-sizes 100 1000
    python benchmarks/bench_optimality.py --quick        a small network, under a minute
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import replace
from pathlib import Path

from reproduction import timing as record
from reproduction.cells import Context
from reproduction.presets import SYNTHETIC, quick_recipe
from reproduction.synthetic import EquivalenceCell
from selfexpress.ops.devices import resolve_device


def main() -> None:
    arguments = parse_arguments()
    context = Context(resolve_device(arguments.device), Path())
    base = quick_recipe(SYNTHETIC) if arguments.quick else SYNTHETIC
    runs = []
    settings = itertools.product(
        arguments.points,
        arguments.steps,
        arguments.batch_sizes,
        arguments.schedules,
        range(arguments.seeds),
    )
    for points, steps, batch_size, schedule, seed in settings:
        recipe = replace(
            base,
            max_iter=steps,
            batch_size=batch_size,
            schedule=schedule,
            precision=arguments.precision,
        )
        cell = EquivalenceCell(recipe=recipe, n_samples=points, seed=seed)
        outcome = cell.run(context)
        runs.append(
            {
                "points": points,
                "steps": steps,
                "batch_size": batch_size,
                "schedule": schedule,
                "seed": seed,
                "gap": outcome.metrics["gap"],
                "accuracy": outcome.metrics["senet"]["accuracy"],
                "sre": outcome.metrics["senet"]["sre"],
                "seconds": outcome.seconds,
            }
        )
        print(runs[-1], flush=True)
    if not arguments.quick:
        path = record.write_record(
            "optimality", {"runs": runs}, vars(arguments), seed=0, device=context.device
        )
        print(path)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, nargs="+", default=[20, 100, 200])
    parser.add_argument("--steps", type=int, nargs="+", default=[4000, 20_000])
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[100])
    parser.add_argument("--schedules", nargs="+", default=["cosine"])
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.points, arguments.steps = [20], [200, 400]
    return arguments


if __name__ == "__main__":
    main()
