"""What large data cost: whole fits from disk to disk, single rows, and a model of both.

``large-data``: rows of 128 numbers on ten random subspaces of dimension 6, in random
order, are written to a file in blocks. A process of its own then opens the file, fits
``SENet`` and writes the labels; its time, its largest resident size and the accuracy
are recorded for each number of rows.

``streaming``: the stages of ``SENet.predict``, one by one, for several numbers of
references; on a CPU in seconds of one processor, so that other work on the machine does
not count. A line fitted to them is the cost model of ``docs/large-data.md``, which
``cost-model`` holds against the fits that were measured and extends to others.

``linear-time``: labels by graphs of random samples against those by all pairs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from reproduction.benchmark import benchmark
from reproduction.presets import DEFAULTS
from reproduction.record import RECORDS, read_records
from reproduction.runner import Context
from reproduction.study import Preparation, StudyCell, study_rows
from reproduction.timing import synchronize
from selfexpress import SENet, open_rows
from selfexpress.affinity.assignment import References, cluster_weights
from selfexpress.affinity.coefficients import embed_keys, largest_coefficients
from selfexpress.config import NetworkConfig
from selfexpress.errors import ConfigError
from selfexpress.files.arrays import write_labels
from selfexpress.metrics import adjusted_rand, clustering_accuracy
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.ops.self_expression import unit_rows
from selfexpress.rows.sources import ArraySource

N_SUBSPACES, DIMENSION, N_FEATURES = 10, 6, 128
WIDTH, N_NONZERO = 512, 30
_BLOCK_ROWS = 65_536


@benchmark(
    "Rows on disk to labels on disk: time linear in the rows, memory flat",
    quick={"sizes": (2000, 8000), "max_iter": 100, "n_references": 1000},
)
def large_data(
    context: Context,
    seed: int,
    *,
    sizes: Sequence[int] = (10_000, 100_000, 1_000_000),
    suffix: str = ".parquet",
    max_iter: int | str = "auto",
    n_references: int = 10_000,
) -> dict[str, Any]:
    """Label files of several sizes, and say how time and memory grow."""
    settings = {
        "max_iter": max_iter,
        "n_references": n_references,
        # Sampled beyond the smallest size, so that all sizes are labelled in one way.
        "n_cluster_samples": n_references,
        "device": str(context.device),
        "random_state": seed,
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"rows{suffix}"
        runs = [measured(path, size, settings) for size in sizes]
    found: dict[str, Any] = {"runs": runs, "load_average": os.getloadavg()}
    size = np.log(sizes)
    for name in ("seconds", "processor_seconds", "peak_resident_bytes"):
        # On log axes, from each size to the next.
        slope = np.diff(np.log([run[name] for run in runs])) / np.diff(size)
        found[f"slopes of {name}"] = slope
    return found


def measured(path: Path, size: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Write rows, label them in a process of its own, and look at the result."""
    truth = write_rows(path, size, seed=settings["random_state"])
    code = f"from {__name__} import fit_file; fit_file({str(path)!r}, {settings!r})"
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", code], env=os.environ | paths)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise ConfigError(f"The fit of {size} rows must end, but failed. See above.")
    labels = np.load(path.with_name("labels.npy"))
    return {
        "n_samples": size,
        "bytes_on_disk": path.stat().st_size,
        "seconds": seconds,
        "processor_seconds": usage.ru_utime + usage.ru_stime,
        "accuracy": clustering_accuracy(labels, truth),
        **json.loads(path.with_name("found.json").read_text()),
    }


def fit_file(file: str, settings: dict[str, Any]) -> None:
    """Label the rows of a file; runs in a process of its own."""
    start, path = time.perf_counter(), Path(file)
    model = SENet(N_SUBSPACES, **DEFAULTS | settings).fit(open_rows(path))
    write_labels(path.with_name("labels.npy"), model.labels_)
    # Not by ``getrusage``, whose figure is never below that of the parent.
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    is_cuda = settings["device"].startswith("cuda")
    facts = {
        "stages": model.timings_,
        "seconds_without_imports": time.perf_counter() - start,
        "n_clustered": len(model.sample_indices_),
        "peak_resident_bytes": 1024 * int(found.group(1)) if found else None,
        "peak_device_bytes": torch.cuda.max_memory_allocated() if is_cuda else None,
    }
    path.with_name("found.json").write_text(json.dumps(facts))


def write_rows(path: Path, size: int, *, seed: int) -> NDArray[np.int64]:
    """Write rows on random subspaces in blocks; return the subspace of each."""
    generator = np.random.default_rng(seed)
    shape = (N_SUBSPACES, N_FEATURES, DIMENSION)
    bases = np.linalg.qr(generator.standard_normal(shape))[0].astype(np.float32)
    truth = generator.integers(0, N_SUBSPACES, size)

    def blocks() -> Iterator[tuple[int, NDArray[np.float32]]]:
        for start in range(0, size, _BLOCK_ROWS):
            chosen = truth[start : start + _BLOCK_ROWS]
            weights = generator.standard_normal((len(chosen), DIMENSION), np.float32)
            rows = np.empty((len(chosen), N_FEATURES), np.float32)
            for number, basis in enumerate(bases):
                is_here = chosen == number
                rows[is_here] = weights[is_here] @ basis.T
            yield start, rows

    if path.suffix == ".parquet":
        schema = pa.schema([("features", pa.list_(pa.float32(), N_FEATURES))])
        with pq.ParquetWriter(path, schema) as writer:
            for _, rows in blocks():
                lists = pa.FixedSizeListArray.from_arrays(rows.reshape(-1), N_FEATURES)
                writer.write_table(pa.table({"features": lists}, schema=schema))
    else:
        table = np.lib.format.open_memmap(
            path, mode="w+", dtype=np.float32, shape=(size, N_FEATURES)
        )
        for start, rows in blocks():
            table[start : start + len(rows)] = rows
        table.flush()
    return truth


@benchmark(
    "What a row costs: embedding it, expressing it, assigning it",
    quick={"rows": 1000, "references": (500, 1000), "repeats": 1},
)
@torch.inference_mode()
def streaming(
    context: Context,
    seed: int,
    *,
    rows: int = 8192,
    references: Sequence[int] = (2000, 5000, 10_000, 20_000),
    repeats: int = 3,
) -> dict[str, Any]:
    """Time the stages for each number of references, and fit a line to their sums."""
    device = context.device
    n_threads = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(seed)
    config = NetworkConfig((WIDTH, WIDTH), WIDTH)
    network = SelfExpressiveNetwork(N_FEATURES, config, generator=generator).to(device)

    def points(n_rows: int) -> ArraySource:
        drawn = torch.randn(n_rows, N_FEATURES, generator=generator)
        return ArraySource(unit_rows(drawn).to(device), device=device)

    def clock(function: Callable[[], object]) -> float:
        """Return the least seconds a row of some calls."""
        now = time.process_time if device.type == "cpu" else time.perf_counter
        function()
        seconds = []
        for _ in range(repeats):
            synchronize(device)
            start = now()
            function()
            synchronize(device)
            seconds.append(now() - start)
        return min(seconds) / rows

    source, stages = points(rows), []
    (block,) = source.blocks(rows)
    tower = clock(lambda: network.query_tower(block.rows))
    for n_references in references:
        keys = embed_keys(network, points(n_references), block_size=8192)
        known = References(keys, np.arange(n_references) % 10, 10)
        express = partial(
            largest_coefficients,
            *(network, source, keys),
            n_nonzero=N_NONZERO,
            exclude_self=False,
        )
        seconds = {
            "query_tower": tower,
            "coefficients": clock(express) - tower,
            "naming": clock(partial(cluster_weights, express(), known)),
        }
        both = {**seconds, "all": sum(seconds.values())}
        stages.append({"n_references": n_references, "seconds_per_row": both})
    torch.set_num_threads(n_threads)
    all_seconds = [stage["seconds_per_row"]["all"] for stage in stages]
    slope, constant = np.polyfit(references, all_seconds, 1)
    return {"stages": stages, "model": {"constant": constant, "per_reference": slope}}


@benchmark(
    "What the measured costs of a row predict for more rows and more processes",
    quick={},
)
def cost_model(
    context: Context,  # noqa: ARG001
    seed: int,  # noqa: ARG001
    *,
    hardware: str = "H200",
    rows: int = 1_000_000_000,
    processes: int = 64,
    disk: float = 1e9,
) -> dict[str, Any]:
    """Extend the records of ``streaming`` and ``large-data`` of one hardware.

    Without the former, a row costs what it did in the largest fit. ``disk`` is in bytes
    a second and process.
    """
    fits = newest("large-data", hardware)
    if fits is None:
        raise ConfigError(
            f"hardware must be that of a record of large-data, got {hardware!r}. Run "
            "large-data there, or use H200 or 2 cores."
        )
    runs, costs = fits["runs"], newest("streaming", hardware)
    last = runs[-1]
    per_row = last["stages"]["prediction"] / last["n_samples"]
    if costs is not None:
        line = costs["model"]
        per_row = line["constant"] + line["per_reference"] * last["n_clustered"]
    # Training, the graph of the sample and its labels do not grow with the rows.
    fixed = max(
        sum(s for name, s in run["stages"].items() if name != "prediction")
        for run in runs
    )
    own_rows = rows / processes
    reading = own_rows * last["bytes_on_disk"] / last["n_samples"] / disk
    return {
        "microseconds_a_row": 1e6 * per_row,
        "seconds_not_growing": fixed,
        "fits": [
            {
                "n_samples": run["n_samples"],
                "seconds_of_assigning": run["stages"].get("prediction", 0),
                "seconds_by_the_model": run["n_samples"] * per_row,
            }
            for run in runs
        ],
        "seconds_of_assigning": own_rows * per_row,
        "seconds_of_reading": reading,
        "seconds": fixed + max(own_rows * per_row, reading),
    }


def newest(task: str, hardware: str) -> dict[str, Any] | None:
    """Return the metrics of a benchmark's newest record on some hardware."""
    found = [
        record["metrics"]
        for record in read_records(RECORDS / f"{task}.jsonl")
        if hardware in record["hardware"]["name"] and "metrics" in record
    ]
    return found[-1] if found else None


@benchmark(
    "Labels by a graph of a sample agree with those of all pairs (ARI at least 0.97)",
    quick={"n_samples": 2000, "sizes": (500, 1000), "max_iter": 200},
)
def linear_time(
    context: Context,
    seed: int,
    *,
    sizes: Sequence[int] = (10_000, 20_000, 40_000),
    n_samples: int = 70_000,
    max_iter: int | str = "auto",
) -> dict[str, Any]:
    """Cluster MNIST by all pairs, and by samples of several sizes."""
    cell = StudyCell(
        dataset="mnist", preparation=Preparation(n_components=250), n_rows=n_samples
    )
    rows, truth = study_rows(cell, context)

    def fit(n_rows: int | None) -> SENet:
        settings = DEFAULTS | {"n_cluster_samples": n_rows, "max_iter": max_iter}
        model = SENet(10, **settings, device=context.device, random_state=seed)
        fitted: SENet = model.fit(rows)
        return fitted

    def scores(model: SENet) -> dict[str, Any]:
        accuracy = clustering_accuracy(model.labels_, truth)
        return {"accuracy": accuracy, "seconds": model.timings_}

    exact, samples = fit(None), []
    for size in sizes:
        model = fit(size)
        agreement = adjusted_rand(model.labels_, exact.labels_)
        found = {"n_cluster_samples": size, "agreement_with_all_pairs": agreement}
        samples.append(found | scores(model))
    return {"n_samples": len(rows), "all_pairs": scores(exact), "samples": samples}
