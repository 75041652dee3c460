"""MNIST from raw pixels in memory to labels, with seconds by stage.

70,000 images are scattered, whitened to 250 dimensions and clustered by ``SENet`` with
its defaults. Then the stages after training once more, each alone: the largest
coefficients of every row, the graph of nearest rows, eigenvectors and k-means.

    selfexpress bench pipeline
    selfexpress bench pipeline --quick          1,000 images, no record
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from reproduction.timing import peak_bytes, timed, write_record
from selfexpress import SENet, load_dataset
from selfexpress.affinity.coefficients import embed_keys, largest_coefficients
from selfexpress.affinity.nearest_rows import nearest_sparse_rows
from selfexpress.features import Scattering2D, Whitening
from selfexpress.metrics import (
    adjusted_rand,
    clustering_accuracy,
    normalized_mutual_info,
)
from selfexpress.ops.self_expression import unit_rows
from selfexpress.rows.sources import ArraySource
from selfexpress.spectral import spectral_clusters

N_COMPONENTS = 250


def run(images: torch.Tensor, device: torch.device, seed: int):
    """Return model, features and seconds by stage."""
    seconds = {}

    def stage(name, function):
        start = time.perf_counter()
        result = function()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds[name] = time.perf_counter() - start
        return result

    images = stage("upload", lambda: images.to(device))
    held = [stage("scattering", lambda: Scattering2D().fit_transform(images))]
    features = stage(
        "whitening", lambda: Whitening(N_COMPONENTS).fit_transform(held[0])
    )
    held.clear()
    model = SENet(10, random_state=seed, device=device, n_cluster_samples=None)
    stage("fit", lambda: model.fit(features))
    seconds["total"] = sum(seconds.values())
    seconds.update({f"fit: {name}": value for name, value in model.timings_.items()})
    return model, features, seconds


def stages_alone(model, features, device: torch.device) -> dict[str, float]:
    """Time what follows training, with everything on the device."""
    source = ArraySource(unit_rows(features.float()), device=device)
    keys = embed_keys(model.network_, source, block_size=8192)

    def largest():
        return largest_coefficients(
            model.network_, source, keys, n_nonzero=1000, exclude_self=True
        )

    rows = largest().normalized()
    functions = {
        "largest 1000 coefficients": largest,
        "3 nearest rows": lambda: nearest_sparse_rows(
            rows, rows, n_neighbors=3, exclude_self=True
        ),
        "15 eigenvectors and k-means": lambda: spectral_clusters(
            model.affinity_matrix_, 10, n_eigenvectors=15, device=device
        ),
    }
    return {
        name: timed(function, 5, warmup=1, device=device).median
        for name, function in functions.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1,000 images, no record")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data", help="folder of the data sets")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = load_dataset("mnist", root=options.data)
    n_images = 1000 if options.quick else len(data.labels)
    images = torch.from_numpy(np.array(data.samples[:n_images]))
    truth = data.labels[:n_images]

    if device.type == "cuda":
        run(images, device, seed=99)  # a warm process
        torch.cuda.reset_peak_memory_stats()
    runs = []
    for seed in range(1 if options.quick else options.repeats):
        model, features, seconds = run(images, device, seed)
        scores = {
            "accuracy": clustering_accuracy(truth, model.labels_),
            "nmi": normalized_mutual_info(truth, model.labels_),
            "ari": adjusted_rand(truth, model.labels_),
        }
        runs.append({"seed": seed, **scores, "seconds": seconds})
        print(runs[-1], flush=True)
    results = {"runs": runs, "peak_gib": peak_bytes(device) / 2**30}
    if device.type == "cuda":
        results["stages"] = stages_alone(model, features, device)
    print(results.get("stages"), results["peak_gib"])
    config = {"n_images": n_images, "n_components": N_COMPONENTS}
    if not options.quick:
        path = write_record("pipeline-mnist", results, config, seed=0, device=device)
        print(path)


if __name__ == "__main__":
    main()
