"""SENet learns subspace-preserving coefficients and keeps them for unseen points.

The paper's first synthetic experiment: 5 subspaces of dimension 6 in R^15, 200 points
each, half of all points to train on, gamma 50, l1_ratio 0.9, the paper's network, 500
full-batch steps. The paper reports SRE 10 % on the training half and 24 % on the
unseen half.

    python benchmarks/bench_first_experiment.py
    python benchmarks/bench_first_experiment.py --quick       one seed, a small network
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch

from reproduction import timing as record
from selfexpress import SENet, make_subspaces
from selfexpress.affinity.coefficients import embed_keys, sparse_coefficients
from selfexpress.metrics import clustering_accuracy, subspace_preserving_error
from selfexpress.rows.sources import ArraySource, UnitRows

SETTINGS: dict[str, Any] = {
    "gamma": 50.0,
    "l1_ratio": 0.9,
    "hidden_sizes": (1024, 1024, 1024),
    "n_embedding": 1024,
    "n_train_samples": None,
    "n_cluster_samples": None,
    "batch_size": 500,
    "max_iter": 500,
    "learning_rate": 1e-3,
    "n_nonzero": 1000,
    "affinity": "symmetric",
    "n_eigenvectors": None,
    "precision": "float32",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    settings = dict(SETTINGS)
    if arguments.quick:
        settings.update(hidden_sizes=(256, 256), n_embedding=256)
    results: dict[str, Any] = {}
    for schedule in ("constant", "cosine"):
        runs = [
            run(seed, {**settings, "schedule": schedule, "device": arguments.device})
            for seed in range(1 if arguments.quick else 5)
        ]
        means = {name: float(np.mean([r[name] for r in runs])) for name in runs[0]}
        results[schedule] = {"mean": means, "runs": runs}
        print(schedule, {name: round(value, 4) for name, value in means.items()})
    if not arguments.quick:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        print(
            record.write_record(
                "first-experiment", results, settings, seed=0, device=device
            )
        )


def run(seed: int, settings: dict[str, Any]) -> dict[str, float]:
    """Return the errors of one draw of subspaces, points and weights."""
    data = make_subspaces(
        5, dimension=6, n_features=15, n_samples=200, random_state=seed
    )
    order = np.random.default_rng(seed).permutation(len(data.X))
    fitted, unseen = order[:500], order[500:]
    model = SENet(5, random_state=seed, **settings).fit(data.X[fitted])
    return {
        "sre": subspace_preserving_error(model.coefficients_, data.labels[fitted]),
        "acc": clustering_accuracy(model.labels_, data.labels[fitted]),
        "sre_unseen": subspace_preserving_error(
            expressed_by_themselves(model, data.X[unseen]), data.labels[unseen]
        ),
        "acc_predict": clustering_accuracy(
            model.predict(data.X[unseen]), data.labels[unseen]
        ),
        "training_seconds": model.timings_["training"],
    }


def expressed_by_themselves(model: SENet, X: np.ndarray) -> Any:
    """Return the coefficients of unseen points on each other, as the paper does."""
    device = model.references_.keys.device
    source = UnitRows(ArraySource(X, device=device))
    keys = embed_keys(model.network_, source, block_size=len(X))
    return sparse_coefficients(
        model.network_, source, keys, n_nonzero=len(X), exclude_self=True
    )


if __name__ == "__main__":
    main()
