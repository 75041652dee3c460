"""Minima that k-means finds in the paper's spectral step, on the graph of one network.

A network of Table 3, with the paper's settings, gives one graph; k-means in its
eigenvectors starts many times. Whether the lowest minimum is the most accurate one,
and by how much it is the lowest, tells what a single figure of such a table is worth.

    selfexpress bench k-means-minima --dataset mnist --trained-on 20000 --seed 2
    selfexpress bench k-means-minima --quick            1,200 images, no record
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import replace

import torch
from record import write_record
from sklearn.cluster import KMeans

from selfexpress.experiments.cells import Context
from selfexpress.experiments.evaluation import make_senet
from selfexpress.experiments.images import curve_size, find_clusters, senet_cell
from selfexpress.experiments.inputs import image_rows
from selfexpress.experiments.places import default_cache
from selfexpress.metrics import clustering_accuracy

# Sums of squares that agree to so many digits are one minimum.
DIGITS = 4


def embedding_of(cell, rows, context: Context):
    """Train the network of a cell; return the eigenvectors of all rows."""
    preset = cell.preset
    model = make_senet(
        preset.recipe,
        n_clusters=preset.n_clusters,
        n_samples=cell.n_train,
        seed=cell.seed,
        device=context.device,
    ).fit(rows.X[rows.draw(cell.n_train, cell.seed)])
    return find_clusters(
        model.network_, rows.X, preset, seed=cell.seed, context=context, seconds={}
    ).embedding


def minima_of(embedding, truth, *, n_clusters: int, n_starts: int) -> list[dict]:
    """Return the minima by rising sum of squares, and how many starts ended there."""
    accuracies = defaultdict(list)
    for seed in range(n_starts):
        found = KMeans(n_clusters, n_init=1, random_state=seed).fit(embedding)
        inertia = float(f"{found.inertia_:.{DIGITS}g}")
        accuracies[inertia].append(clustering_accuracy(truth, found.labels_))
    return [
        {"inertia": inertia, "accuracy": min(same), "starts": len(same)}
        for inertia, same in sorted(accuracies.items())
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small, no record")
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--trained-on", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--starts", type=int, default=60)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    n_train = curve_size(True) if options.quick else options.trained_on
    n_starts = 5 if options.quick else options.starts
    cell = replace(
        senet_cell(options.dataset, n_train, options.quick), seed=options.seed
    )
    context = Context(device, default_cache())
    rows = image_rows(cell.preset, context)
    minima = minima_of(
        embedding_of(cell, rows, context),
        rows.labels,
        n_clusters=cell.preset.n_clusters,
        n_starts=n_starts,
    )
    for each in minima:
        print(
            f"sum of squares {each['inertia']:g}, ACC {each['accuracy']:.3f}, "
            f"{each['starts']} of {n_starts} starts"
        )
    if not options.quick:
        config = {"dataset": options.dataset, "trained_on": n_train, "starts": n_starts}
        claim = f"k-means-minima-{options.dataset}"
        print(
            write_record(
                claim, {"minima": minima}, config, seed=options.seed, device=device
            )
        )


if __name__ == "__main__":
    main()
