"""How far labels swing with starts of k-means and eigenvectors, on one graph.

One network is trained and gives one graph; only the spectral step is repeated, with
five seeds for each number of eigenvectors: k-means on them as they are, and pieces
merged by information, SENet's default, which takes two eigenvectors a cluster.

    selfexpress bench spectral-swing
    selfexpress bench spectral-swing --quick            letters, 1,000 rows, no record
"""

from __future__ import annotations

import argparse
from unittest import mock

import numpy as np
import torch

from reproduction.benchmarks.accuracy import features_of
from reproduction.timing import write_record
from selfexpress import SENet
from selfexpress.metrics import clustering_accuracy
from selfexpress.spectral import clusters

# Eigenvectors for each cluster.
NUMBERS = (1.2, 1.5, 2.0, 3.0, 4.0)
WAYS = ("k-means", "merged")


def labels_of(
    affinity, n_clusters: int, way: str, number: float, seed: int, device: torch.device
):
    """Return labels from ``number`` eigenvectors a cluster; "merged" has a constant."""
    is_merged = way == "merged"
    with mock.patch.object(clusters, "_DIMENSIONS_A_CLUSTER", number):
        return clusters.spectral_clusters(
            affinity,
            n_clusters,
            n_eigenvectors="auto" if is_merged else round(number * n_clusters),
            n_init=20,
            seed=seed,
            device=device,
        ).labels


def swing(scores: list[float]) -> dict[str, float]:
    return {
        "mean": float(np.mean(scores)),
        "standard_deviation": float(np.std(scores, ddof=1)),
        "smallest": min(scores),
        "largest": max(scores),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small, no record")
    parser.add_argument("--dataset", default="fashion-mnist")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data", help="folder of the data sets")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name, n_rows, settings = options.dataset, None, {}
    if options.quick:
        name, n_rows, settings = "ocr-letters", 1000, {"max_iter": 100}
        options.seeds = 2
    rows, truth = features_of(name, options.data, device, n_rows)
    n_clusters = len(np.unique(truth))
    model = SENet(n_clusters, random_state=0, device=device, **settings).fit(rows)
    print(name, len(rows), f"ACC {clustering_accuracy(truth, model.labels_):.3f}")
    results = {}
    for way in WAYS:
        found = {}
        for number in NUMBERS:
            found[f"{number:g}"] = [
                clustering_accuracy(
                    truth,
                    labels_of(
                        model.affinity_matrix_, n_clusters, way, number, seed, device
                    ),
                )
                for seed in range(options.seeds)
            ]
            print(way, number, np.round(found[f"{number:g}"], 3), flush=True)
        together = swing([score for scores in found.values() for score in scores])
        results[way] = {"accuracy": found, "all": together}
        print(way, {key: round(value, 3) for key, value in together.items()})
    if not options.quick:
        config = {"dataset": name, "seeds": options.seeds}
        claim = f"spectral-swing-{name}"
        print(write_record(claim, results, config, seed=0, device=device))


if __name__ == "__main__":
    main()
