"""SENet counts the clusters itself: ``n_clusters="auto"`` on every data set at hand.

Rows are those of ``bench_accuracy.py`` and ``bench_small_sets.py``: images scattered
and whitened, CIFAR-10 as features of our own encoder. The true number of classes
enters nothing but the last column.

    selfexpress bench n-clusters
    selfexpress bench n-clusters --quick        1,000 letters and subspaces, no record
    python benchmarks/bench_n_clusters.py --datasets coil20,orl --rows 5000 --device cpu
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import torch

from reproduction.benchmarks.accuracy import SETS, features_of, scores
from reproduction.benchmarks.small_sets import SETS as SMALL_SETS
from reproduction.timing import write_record
from selfexpress import SENet, make_subspaces
from selfexpress.errors import DegenerateWarning


def rows_of(name: str, n_rows: int | None, root: str | None, device: torch.device):
    """Return rows on the device and the truth, a random part of them if so asked."""
    if name == "subspaces":
        data = make_subspaces(
            8, dimension=4, n_features=40, n_samples=100, noise=0.3, random_state=0
        )
        return torch.from_numpy(data.X).to(device, torch.float32), data.labels
    rows, truth = features_of(name, root, device)
    if n_rows is not None and n_rows < len(rows):
        index = np.sort(np.random.default_rng(0).permutation(len(rows))[:n_rows])
        rows, truth = rows[index], truth[index]
    return rows, truth


def fitted(rows, truth, *, seed: int, device: torch.device, **settings) -> dict:
    """Return what one fit found, and whether it called that a guess."""
    model = SENet("auto", random_state=seed, device=device, **settings)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DegenerateWarning)
        model.fit(rows)
    return {
        "seed": seed,
        "found": model.n_clusters_,
        "true": len(np.unique(truth)),
        "is_guess": any("is a guess" in str(warning.message) for warning in caught),
        **scores(truth, model.labels_),
        "seconds": sum(model.timings_.values()),
        "spectral_seconds": model.timings_["spectral"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small, no record")
    parser.add_argument("--datasets", default=",".join(SETS + SMALL_SETS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, help="at most so many rows of each")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data", help="folder of the data sets")
    options = parser.parse_args()
    is_cuda = torch.cuda.is_available() and options.device == "auto"
    device = torch.device("cuda" if is_cuda else options.device.replace("auto", "cpu"))
    names = options.datasets.split(",")
    settings = {}
    if options.quick:
        names, options.rows, options.seeds = ["subspaces", "ocr-letters"], 1000, 1
        settings = {"max_iter": 100}
    results = {}
    for name in names:
        rows, truth = rows_of(name, options.rows, options.data, device)
        runs = []
        for seed in range(options.seeds):
            runs.append(fitted(rows, truth, seed=seed, device=device, **settings))
            print(name, len(rows), line(runs[-1]), flush=True)
        results[name] = {"n_rows": len(rows), "runs": runs}
    if not options.quick:
        config = {key: getattr(options, key) for key in ("datasets", "seeds", "rows")}
        print(write_record("n-clusters", results, config, seed=0, device=device))


def line(run: dict) -> str:
    guess = " (a guess)" if run["is_guess"] else ""
    return (
        f"seed {run['seed']}: found {run['found']}{guess}, true {run['true']}; "
        f"ACC {run['accuracy']:.3f} NMI {run['nmi']:.3f} ARI {run['ari']:.3f}; "
        f"{run['seconds']:.1f} s, spectral {run['spectral_seconds']:.1f} s"
    )


if __name__ == "__main__":
    main()
