"""A vote of the points that express a new one names it as well as any other rule.

Three ways to name a point that was not fitted, from its coefficients on the fitted
points: add up |c| over each cluster (vote, what ``SENet.predict`` does), take the
cluster of the fitted points whose coefficients are nearest (nearest), or average the
spectral embedding of those neighbours and take the nearest cluster centre (embedding).
Measured on MNIST and Fashion-MNIST with whitened scattering features: accuracy on the
10,000 test images next to that on the fitted ones, and agreement with the fitted
labels.

    python benchmarks/bench_predict_rules.py                      10,000 images fitted
    python benchmarks/bench_predict_rules.py --fitted 60000 --device cuda
    python benchmarks/bench_predict_rules.py --quick
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from reproduction import timing as record
from selfexpress import SENet
from selfexpress.affinity.nearest_rows import nearest_rows
from selfexpress.datasets.loading import load_dataset
from selfexpress.features.scattering import Scattering2D
from selfexpress.features.whitening import Whitening
from selfexpress.metrics import adjusted_rand, clustering_accuracy

N_CLUSTERS = 10


def main() -> None:
    arguments = parse_arguments()
    device = "cuda" if arguments.device == "cuda" else "cpu"
    for name in arguments.datasets:
        runs = [run(name, seed, arguments) for seed in range(arguments.seeds)]
        for result in runs:
            print(name, result, flush=True)
        if not arguments.quick:
            claim = f"predict-rules-{name}"
            path = record.write_record(
                claim, {"runs": runs}, vars(arguments), seed=0, device=device
            )
            print(path)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", default=["mnist", "fashion-mnist"])
    parser.add_argument("--fitted", type=int, default=10_000)
    parser.add_argument("--dimension", type=int, default=250)
    parser.add_argument("--max-iter", type=int, default=1000)
    parser.add_argument("--train", type=int, default=2000)
    parser.add_argument("--batch-size", type=int, default=200)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.datasets, arguments.seeds = ["mnist"], 1
        arguments.fitted, arguments.train = 1000, 500
        arguments.max_iter, arguments.width, arguments.dimension = 300, 256, 100
    return arguments


def run(name: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Fit on images of the training part, name those of the test part."""
    train, test = load_dataset(name, split="train"), load_dataset(name, split="test")
    order = np.random.default_rng(seed).permutation(len(train))[: arguments.fitted]
    truth, new_truth = train.labels[order], test.labels
    n_new = 1000 if arguments.quick else len(test)
    features = Scattering2D(resize=32, device=arguments.device)
    whitening = Whitening(arguments.dimension)
    rows = whitening.fit_transform(features.fit_transform(train.samples[order]))
    new_rows = whitening.transform(features.transform(test.samples[:n_new]))
    model = SENet(
        N_CLUSTERS,
        hidden_sizes=(arguments.width,) * 2,
        n_embedding=arguments.width,
        max_iter=arguments.max_iter,
        batch_size=arguments.batch_size,
        n_train_samples=arguments.train,
        n_references=arguments.fitted,
        n_cluster_samples=None,
        device=arguments.device,
        random_state=seed,
    ).fit(rows)
    result: dict[str, Any] = {
        "seed": seed,
        "accuracy_fitted": clustering_accuracy(model.labels_, truth),
        "seconds": model.timings_,
    }
    fitted_rules, new_rules = rules(model, rows), rules(model, new_rows)
    for rule, labels in new_rules.items():
        result[rule] = {
            "accuracy_new": clustering_accuracy(labels, new_truth[:n_new]),
            "agreement_with_fit": adjusted_rand(fitted_rules[rule], model.labels_),
        }
    assert (new_rules["vote"] == model.predict(new_rows)).mean() > 0.999
    return result


def rules(model: SENet, rows: Any) -> dict[str, NDArray[np.int64]]:
    """Return the labels that each rule gives to some rows."""
    coefficients = model.self_expression(rows)
    clusters = np.eye(N_CLUSTERS)[model.labels_]  # (N, k)
    neighbors = nearest_rows(
        coefficients,
        model.coefficients_,
        n_neighbors=10,
        device=model.references_.keys.device,
    )
    row, place = np.nonzero(neighbors.index >= 0)
    weights = sparse.csr_array(
        (neighbors.similarity[row, place], (row, neighbors.index[row, place])),
        shape=coefficients.shape,
    )
    centres = clusters.T @ model.embedding_ / clusters.sum(axis=0)[:, None]
    embedding = torch.from_numpy(weights @ model.embedding_)
    embedding = torch.nn.functional.normalize(embedding, dim=1)
    distances = torch.cdist(embedding, torch.from_numpy(centres))
    return {
        "vote": (abs(coefficients) @ clusters).argmax(axis=1),
        "nearest": (weights @ clusters).argmax(axis=1),
        "embedding": distances.argmin(dim=1).numpy(),
    }


if __name__ == "__main__":
    main()
