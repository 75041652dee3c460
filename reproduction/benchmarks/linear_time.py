"""Linear-time labels agree with all-pairs labels, and an index finds the coefficients.

The graph is built of all rows (the yardstick) and of random samples of them, every
other row being named by the sample; the labels are compared by the adjusted Rand index.
Then the largest coefficients of all rows are found once by all pairs and once by an
index of the keys, and compared by recall. MNIST, scattering features, whitened.

    python benchmarks/bench_linear_time.py                       70,000 images, minutes
    python benchmarks/bench_linear_time.py --device cuda --parts linear
    python benchmarks/bench_linear_time.py --quick
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from reproduction import timing as record
from selfexpress import SENet
from selfexpress.affinity.coefficients import embed_keys, sparse_coefficients
from selfexpress.affinity.maximum_inner_product import recall_of, searched_coefficients
from selfexpress.datasets.loading import load_dataset
from selfexpress.features.scattering import Scattering2D
from selfexpress.features.whitening import Whitening
from selfexpress.metrics import adjusted_rand, clustering_accuracy
from selfexpress.rows.sources import ArraySource, UnitRows

N_CLUSTERS = 10


def main() -> None:
    arguments = parse_arguments()
    rows, truth = features(arguments)
    exact = fit(rows, None, arguments)
    results: dict[str, Any] = {
        "n_samples": len(rows),
        "all_pairs": {
            "accuracy": clustering_accuracy(exact.labels_, truth),
            "seconds": exact.timings_,
        },
    }
    print(results, flush=True)
    if "linear" in arguments.parts:
        results["samples"] = [
            linear(rows, truth, exact, n_rows, arguments) for n_rows in arguments.sizes
        ]
    if "index" in arguments.parts:
        results["index"] = index(exact, rows)
        print(results["index"], flush=True)
    if not arguments.quick:
        config = {**vars(arguments), "rows": None}
        print(
            record.write_record(
                "linear-time",
                results,
                config,
                seed=arguments.seed,
                device=arguments.device,
            )
        )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", default=["linear", "index"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[5000, 10_000, 20_000])
    parser.add_argument("--rows", type=Path, help="whitened features, computed before")
    parser.add_argument("--n-samples", type=int, default=70_000)
    parser.add_argument("--max-iter", type=int, help="that of SENet unless given")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.n_samples, arguments.max_iter = 2000, 200
        arguments.sizes = [500, 1000]
    return arguments


def features(
    arguments: argparse.Namespace,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return whitened scattering features of MNIST and the digits."""
    data = load_dataset("mnist")
    chosen = np.random.default_rng(arguments.seed).permutation(len(data))
    chosen = np.sort(chosen[: arguments.n_samples])
    if arguments.rows is not None:
        return np.load(arguments.rows)[chosen], data.labels[chosen]
    scattering = Scattering2D(resize=32, device=arguments.device)
    found = scattering.fit_transform(data.samples[chosen])
    return Whitening(250).fit_transform(found), data.labels[chosen]


def fit(
    rows: NDArray[np.float32], n_rows: int | None, arguments: argparse.Namespace
) -> SENet:
    return SENet(
        N_CLUSTERS,
        n_cluster_samples=n_rows,
        max_iter=arguments.max_iter or "auto",
        device=arguments.device,
        random_state=arguments.seed,
    ).fit(rows)


def linear(
    rows: NDArray[np.float32],
    truth: NDArray[np.int64],
    exact: SENet,
    n_rows: int,
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    """Compare the labels of a sample's graph with those of all pairs."""
    model = fit(rows, n_rows, arguments)
    result = {
        "n_cluster_samples": n_rows,
        "agreement_with_all_pairs": adjusted_rand(model.labels_, exact.labels_),
        "accuracy": clustering_accuracy(model.labels_, truth),
        "seconds": model.timings_,
    }
    print(result, flush=True)
    return result


@torch.inference_mode()
def index(model: SENet, rows: NDArray[np.float32]) -> dict[str, Any]:
    """Compare the coefficients that an index finds with all pairs."""
    device = model.references_.keys.device
    source = UnitRows(ArraySource(rows, device=device))
    keys = embed_keys(model.network_, source, block_size=8192)
    start = time.perf_counter()
    exact = sparse_coefficients(
        model.network_, source, keys, n_nonzero=model.n_nonzero, exclude_self=True
    )
    all_pairs = time.perf_counter() - start
    start = time.perf_counter()
    found = searched_coefficients(
        model.network_, source, keys, n_nonzero=model.n_nonzero
    )
    return {
        "n_nonzero": model.n_nonzero,
        "recall_measured_on_all_rows": recall_of(found.coefficients, exact),
        "recall_reported": found.recall,
        "n_lists": found.n_lists,
        "n_probes": found.n_probes,
        "seconds_all_pairs": all_pairs,
        "seconds_index": time.perf_counter() - start,
    }


if __name__ == "__main__":
    main()
