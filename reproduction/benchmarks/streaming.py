"""What a row costs: reading it, embedding it, expressing it, naming it.

The stages of ``SENet.predict`` are timed one by one for several numbers of references,
and the formats of files are read through. On a CPU the seconds are those of one
processor, so that other work on the machine does not count. A line fitted to the
seconds of a row against the references is the cost model of ``docs/large-data.md``.

    python benchmarks/bench_streaming.py
    python benchmarks/bench_streaming.py --device cuda --parts stages
    python benchmarks/bench_streaming.py --quick
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reproduction import timing as record
from selfexpress.affinity.assignment import References, cluster_weights
from selfexpress.affinity.coefficients import embed_keys, largest_coefficients
from selfexpress.config import NetworkConfig
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.ops.self_expression import unit_rows
from selfexpress.rows.opening import open_rows
from selfexpress.rows.prefetch import Prefetched
from selfexpress.rows.sources import ArraySource

N_FEATURES, WIDTH, N_NONZERO = 128, 512, 30


def main() -> None:
    arguments = parse_arguments()
    results: dict[str, Any] = {}
    if "stages" in arguments.parts:
        results["stages"] = stages(arguments)
        results["model"] = line(results["stages"])
        print(results["model"])
    if "reading" in arguments.parts:
        results["reading"] = reading(arguments)
    if not arguments.quick:
        print(
            record.write_record(
                "streaming",
                results,
                vars(arguments),
                seed=arguments.seed,
                device=arguments.device,
            )
        )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", default=["stages", "reading"])
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--file-rows", type=int, default=500_000)
    parser.add_argument(
        "--references", nargs="+", type=int, default=[2000, 5000, 10_000, 20_000]
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rows, arguments.file_rows, arguments.repeats = 1000, 20_000, 1
        arguments.references = [500, 1000]
    return arguments


def clock(function: Callable[[], Any], arguments: argparse.Namespace) -> float:
    """Return the least seconds of some calls: of one processor, or of the GPU."""
    is_cuda = arguments.device == "cuda"
    now = time.perf_counter if is_cuda else time.process_time
    function()
    seconds = []
    for _ in range(arguments.repeats):
        if is_cuda:
            torch.cuda.synchronize()
        start = now()
        function()
        if is_cuda:
            torch.cuda.synchronize()
        seconds.append(now() - start)
    return min(seconds)


@torch.inference_mode()
def stages(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Time the stages of naming rows, for each number of references."""
    if arguments.device == "cpu":
        torch.set_num_threads(1)
    device = torch.device(arguments.device)
    generator = torch.Generator().manual_seed(arguments.seed)
    config = NetworkConfig((WIDTH, WIDTH), WIDTH)
    network = SelfExpressiveNetwork(N_FEATURES, config, generator=generator).to(device)

    def points(n_rows: int) -> ArraySource:
        rows = torch.randn(n_rows, N_FEATURES, generator=generator)
        return ArraySource(unit_rows(rows).to(device), device=device)

    source, found = points(arguments.rows), []
    (block,) = source.blocks(arguments.rows)
    tower = clock(lambda: network.query_tower(block.rows), arguments)
    for n_references in arguments.references:
        fitted = points(n_references)
        keys = embed_keys(network, fitted, block_size=8192)
        references = References(keys, np.arange(n_references) % 10, 10)

        def express(keys: torch.Tensor = keys) -> Any:
            return largest_coefficients(
                network, source, keys, n_nonzero=N_NONZERO, exclude_self=False
            )

        coefficients = express()

        def name(coefficients: Any = coefficients, known: Any = references) -> Any:
            return cluster_weights(coefficients, known)

        seconds = {
            "query_tower": tower / arguments.rows,
            "coefficients": clock(express, arguments) / arguments.rows
            - tower / arguments.rows,
            "naming": clock(name, arguments) / arguments.rows,
        }
        found.append(
            {
                "n_references": n_references,
                "seconds_per_row": {**seconds, "all": sum(seconds.values())},
                "flop_per_row": flop(n_references),
            }
        )
        print(found[-1], flush=True)
    return found


def flop(n_references: int) -> dict[str, int]:
    """Return multiplications and additions for a row, from the shapes alone."""
    return {
        "query_tower": 2 * WIDTH * (N_FEATURES + WIDTH + WIDTH),
        "coefficients": 2 * WIDTH * n_references,
    }


def line(found: list[dict[str, Any]]) -> dict[str, float]:
    """Fit seconds of a row = constant + slope * references."""
    n_references = [stage["n_references"] for stage in found]
    seconds = [stage["seconds_per_row"]["all"] for stage in found]
    slope, constant = np.polyfit(n_references, seconds, 1)
    return {"constant": constant, "per_reference": slope}


def reading(arguments: argparse.Namespace) -> dict[str, Any]:
    """Read files through in blocks; return bytes of rows a second."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from safetensors.numpy import save_file

    generator = np.random.default_rng(arguments.seed)
    shape = (arguments.file_rows, N_FEATURES)
    rows = generator.standard_normal(shape, dtype=np.float32)
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "rows.npy", rows)
        save_file({"X": rows}, folder / "rows.safetensors")
        lists = pa.FixedSizeListArray.from_arrays(rows.reshape(-1), N_FEATURES)
        pq.write_table(
            pa.table({"features": lists}),
            folder / "rows.parquet",
            row_group_size=65_536,
        )
        columns = {f"x{n}": column for n, column in enumerate(rows.T.copy())}
        pq.write_table(
            pa.table(columns), folder / "columns.parquet", row_group_size=65_536
        )
        for path in sorted(folder.iterdir()):
            source = open_rows(path)
            for kind, walked in (("plain", source), ("ahead", Prefetched(source))):
                start = time.perf_counter()
                for block in walked.blocks(8192):
                    block.rows.sum()
                seconds = time.perf_counter() - start
                found[f"{path.name}, {kind}"] = rows.nbytes / seconds
                print(path.name, kind, f"{rows.nbytes / seconds / 2**20:.0f} MiB/s")
    return found


if __name__ == "__main__":
    main()
