"""A vote of the points that express a new one assigns it as well as any other rule.

Three ways to assign a point that was not fitted, from its coefficients on the fitted
points: add up |c| over each cluster (vote, what ``SENet.predict`` does), take the
cluster of the fitted points whose coefficients are nearest (nearest), or average the
spectral embedding of those neighbours and take the nearest cluster centre (embedding).
Measured with whitened scattering features: accuracy on the 10,000 test images next to
that on the fitted ones, and agreement with the fitted labels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from reproduction.benchmark import benchmark
from reproduction.presets import DEFAULTS
from reproduction.runner import Context
from selfexpress import SENet, load_dataset
from selfexpress.affinity.nearest_rows import nearest_rows
from selfexpress.features import Scattering2D, Whitening
from selfexpress.metrics import adjusted_rand, clustering_accuracy

N_CLUSTERS = 10


@benchmark(
    "A vote of the rows that express a new one assigns it as well as any other rule",
    quick={
        "fitted": 1000,
        "train": 500,
        "max_iter": 300,
        "width": 256,
        "dimension": 100,
        "n_new": 1000,
    },
    over={"dataset": ("mnist", "fashion-mnist")},
)
def predict_rules(
    context: Context,
    seed: int,
    *,
    dataset: str = "mnist",
    fitted: int = 10_000,
    dimension: int = 250,
    max_iter: int = 1000,
    train: int = 2000,
    batch_size: int = 200,
    width: int = 512,
    n_new: int = 10_000,
) -> dict[str, Any]:
    """Fit on images of the training part, assign those of the test part."""
    images = load_dataset(dataset, split="train")
    test = load_dataset(dataset, split="test")
    order = np.random.default_rng(seed).permutation(len(images))[:fitted]
    truth, new_truth = images.labels[order], test.labels[:n_new]
    features = Scattering2D(resize=32, device=context.device)
    whitening = Whitening(dimension)
    rows = whitening.fit_transform(features.fit_transform(images.samples[order]))
    new_rows = whitening.transform(features.transform(test.samples[:n_new]))
    settings = DEFAULTS | {
        "hidden_sizes": (width,) * 2,
        "n_embedding": width,
        "max_iter": max_iter,
        "batch_size": batch_size,
        "n_train_samples": train,
        "n_references": fitted,
        "n_cluster_samples": None,
    }
    model = SENet(N_CLUSTERS, **settings, device=context.device, random_state=seed).fit(
        rows
    )
    result: dict[str, Any] = {
        "accuracy_fitted": clustering_accuracy(model.labels_, truth),
        "seconds": model.timings_,
    }
    fitted_rules, new_rules = rules(model, rows), rules(model, new_rows)
    for rule, labels in new_rules.items():
        result[rule] = {
            "accuracy_new": clustering_accuracy(labels, new_truth),
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
