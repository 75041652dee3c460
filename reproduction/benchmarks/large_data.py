"""Rows on disk to labels on disk: time grows linearly with the rows, memory does not.

Rows of 128 numbers on ten random subspaces of dimension 6, in random order, are written
to a Parquet file (or a ``.npy`` file) in blocks. A process of its own then opens the
file, fits ``SENet`` and writes the labels; its time, its largest resident size and the
accuracy are recorded for each number of rows.

    python benchmarks/bench_large_data.py                           to 1,000,000 rows
    python benchmarks/bench_large_data.py --sizes 10000000 --device cuda --format npy
    python benchmarks/bench_large_data.py --quick
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reproduction import timing as record

N_SUBSPACES, DIMENSION, N_FEATURES = 10, 6, 128
_BLOCK_ROWS = 65_536


def main() -> None:
    arguments = parse_arguments()
    if arguments.inside is not None:
        print(json.dumps(fit_file(arguments)))
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        runs = [measured(size, Path(folder), arguments) for size in arguments.sizes]
    results: dict[str, Any] = {"runs": runs, "load_average": os.getloadavg()}
    if len(runs) > 1:
        results["slopes"] = slopes(runs)
        print(results["slopes"])
    if not arguments.quick:
        print(
            record.write_record(
                arguments.claim,
                results,
                {**vars(arguments), "folder": None},
                seed=arguments.seed,
                device=arguments.device,
            )
        )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sizes", nargs="+", type=int, default=[10_000, 100_000, 1_000_000]
    )
    parser.add_argument("--format", choices=["parquet", "npy"], default="parquet")
    parser.add_argument("--max-iter", type=int, help="that of SENet unless given")
    parser.add_argument("--n-references", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, help="where to write the rows")
    parser.add_argument("--claim", default="large-data")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.sizes, arguments.max_iter = [2000, 8000], 100
        arguments.n_references = 1000
    return arguments


def measured(size: int, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Write rows, label them in a process of its own, and look at the result."""
    path = folder / f"rows.{arguments.format}"
    start = time.perf_counter()
    truth = write_rows(path, size, seed=arguments.seed)
    print(f"{size} rows written in {time.perf_counter() - start:.1f} s", flush=True)
    # Sampled beyond the smallest size, so that all sizes are labelled in one way.
    words = [
        *(sys.executable, __file__, "--inside", path),
        *("--sizes", size),
        *(("--max-iter", arguments.max_iter) if arguments.max_iter else ()),
        *("--n-references", arguments.n_references),
        *("--seed", arguments.seed, "--device", arguments.device),
    ]
    start = time.perf_counter()
    process = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE)
    assert process.stdout is not None
    told = json.loads(process.stdout.read())
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the fit of {size} rows failed")
    labels = np.load(folder / "labels.npy", mmap_mode="r")
    from selfexpress.metrics import clustering_accuracy

    result = {
        "n_samples": size,
        "bytes_on_disk": path.stat().st_size,
        "seconds": seconds,
        "processor_seconds": usage.ru_utime + usage.ru_stime,
        "accuracy": clustering_accuracy(np.asarray(labels), truth),
        **told,
    }
    print(result, flush=True)
    path.unlink()
    return result


def fit_file(arguments: argparse.Namespace) -> dict[str, Any]:
    """Label the rows of a file; runs in a process of its own."""
    import torch

    from selfexpress import SENet
    from selfexpress.files.arrays import write_labels
    from selfexpress.rows.opening import open_rows

    start = time.perf_counter()
    model = SENet(
        N_SUBSPACES,
        max_iter=arguments.max_iter or "auto",
        n_references=arguments.n_references,
        n_cluster_samples=arguments.n_references,
        device=arguments.device,
        random_state=arguments.seed,
    ).fit(open_rows(arguments.inside))
    write_labels(arguments.inside.with_name("labels.npy"), model.labels_)
    is_cuda = arguments.device == "cuda"
    return {
        "stages": model.timings_,
        "seconds_without_imports": time.perf_counter() - start,
        "n_clustered": len(model.sample_indices_),
        "peak_resident_bytes": peak_resident_bytes(),
        "peak_device_bytes": torch.cuda.max_memory_allocated() if is_cuda else None,
    }


def peak_resident_bytes() -> int:
    """Return the largest resident size of this process.

    Not that of ``getrusage``: it never falls below the size of the process that this
    one was started from.
    """
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    assert found is not None
    return 1024 * int(found.group(1))


def write_rows(path: Path, size: int, *, seed: int) -> NDArray[np.int64]:
    """Write rows on random subspaces in blocks; return the subspace of each."""
    generator = np.random.default_rng(seed)
    bases = np.linalg.qr(
        generator.standard_normal((N_SUBSPACES, N_FEATURES, DIMENSION))
    )[0].astype(np.float32)  # (subspaces, features, dimension)
    truth = generator.integers(0, N_SUBSPACES, size)
    blocks = (
        _points(bases, truth[start : start + _BLOCK_ROWS], generator)
        for start in range(0, size, _BLOCK_ROWS)
    )
    if path.suffix == ".parquet":
        _write_parquet(path, blocks)
    else:
        _write_npy(path, blocks, size)
    return truth


def _points(
    bases: NDArray[np.float32],
    subspaces: NDArray[np.int64],
    generator: np.random.Generator,
) -> NDArray[np.float32]:
    weights = generator.standard_normal((len(subspaces), DIMENSION), dtype=np.float32)
    rows = np.empty((len(subspaces), N_FEATURES), dtype=np.float32)
    for number, basis in enumerate(bases):
        is_here = subspaces == number
        rows[is_here] = weights[is_here] @ basis.T
    return rows


def _write_parquet(path: Path, blocks: Iterator[NDArray[np.float32]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("features", pa.list_(pa.float32(), N_FEATURES))])
    with pq.ParquetWriter(path, schema) as writer:
        for block in blocks:
            column = pa.FixedSizeListArray.from_arrays(block.reshape(-1), N_FEATURES)
            writer.write_table(pa.table({"features": column}, schema=schema))


def _write_npy(path: Path, blocks: Iterator[NDArray[np.float32]], size: int) -> None:
    rows = np.lib.format.open_memmap(
        path, mode="w+", dtype=np.float32, shape=(size, N_FEATURES)
    )
    done = 0
    for block in blocks:
        rows[done : done + len(block)] = block
        done += len(block)
    rows.flush()


def slopes(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the slopes on log axes from each size to the next."""
    size = np.log([run["n_samples"] for run in runs])
    return {
        name: np.diff(np.log([run[name] for run in runs])) / np.diff(size)
        for name in ("seconds", "processor_seconds", "peak_resident_bytes")
    }


if __name__ == "__main__":
    main()
