"""What the measured costs of a row predict for more rows and more processes.

Reads two records of the same hardware: ``streaming`` (seconds of a row by the number of
references; without it, those of the largest fit) and ``large-data`` (whole fits),
compares the model with the fits that were measured, and prints what it says about
others. Measures nothing itself.

    python benchmarks/cost_model.py h200 --rows 1000000000 --processes 64
    python benchmarks/cost_model.py cpu2 --rows 1000000 --processes 2
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).resolve().parent / "records"


def main() -> None:
    arguments = parse_arguments()
    fits = newest(arguments.claim, arguments.hardware)
    if fits is None:
        raise SystemExit(f"there is no record of {arguments.claim}")
    runs = fits["results"]["runs"]
    per_row = row_seconds(newest("streaming", arguments.hardware), runs[-1])
    fixed = max(fixed_seconds(run) for run in runs)
    print(f"a row: {per_row * 1e6:.2f} us with {runs[-1]['n_clustered']} references")
    print(f"not growing with the rows: {fixed:.1f} s (training, graph, labels of it)")
    for run in runs:
        print(
            f"{run['n_samples']:>13,} rows: naming took "
            f"{run['stages'].get('prediction', 0):.1f} s, the model says "
            f"{run['n_samples'] * per_row:.1f} s of one process"
        )
    own_rows = arguments.rows / arguments.processes
    naming, reading = (
        own_rows * per_row,
        own_rows * row_bytes(runs[-1]) / arguments.disk,
    )
    print(
        f"{arguments.rows:>13,} rows, {arguments.processes} processes: "
        f"{fixed + max(naming, reading):.0f} s = {fixed:.0f} s + the larger of naming "
        f"{naming:.0f} s and reading {reading:.0f} s at {arguments.disk / 1e9:g} GB/s "
        "a process"
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("hardware", help="as in the names of records: cpu2, h200")
    parser.add_argument("--rows", type=int, default=1_000_000_000)
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--disk", type=float, default=1e9, help="bytes a second")
    parser.add_argument("--claim", default="large-data")
    return parser.parse_args()


def newest(claim: str, hardware: str) -> dict[str, Any] | None:
    """Return the newest record of a claim, None if there is none."""
    paths = sorted(RECORDS.glob(f"{claim}_*{hardware}_*.json"))
    record: dict[str, Any] | None = json.loads(paths[-1].read_text()) if paths else None
    return record


def row_seconds(streaming: dict[str, Any] | None, run: dict[str, Any]) -> float:
    """Return the seconds to name a row: by the fitted line, or as the fit itself."""
    if streaming is None:
        return float(run["stages"]["prediction"] / run["n_samples"])
    costs = streaming["results"]["model"]
    return float(costs["constant"] + costs["per_reference"] * run["n_clustered"])


def fixed_seconds(run: dict[str, Any]) -> float:
    """Return the seconds of a fit that its rows beyond the sample have no part in."""
    stages = run["stages"]
    return sum(seconds for name, seconds in stages.items() if name != "prediction")


def row_bytes(run: dict[str, Any]) -> float:
    return run["bytes_on_disk"] / run["n_samples"]


if __name__ == "__main__":
    main()
