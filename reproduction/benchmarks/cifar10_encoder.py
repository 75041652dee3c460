"""CIFAR-10 features learned without labels in at most 20 minutes.

Only the 50,000 training images train the encoder and its principal axes; labels serve
the evaluation alone. The features kept are fixed beforehand (hidden layer, centred);
the other candidates are evaluated for comparison. They are written to the cache as
``cifar10_features.npy``, float16, training images first, and from there, by hand, to
``reproduction/features``, where experiments read them.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from reproduction.benchmark import benchmark
from reproduction.encoder.network import LAYERS, Architecture
from reproduction.encoder.training import (
    Training,
    TrainingSettings,
    layer_averages,
    principal_features,
)
from reproduction.evaluation import label_scores
from reproduction.runner import Context
from selfexpress import load_dataset

N_NEIGHBORS, N_CLASSES, N_COMPONENTS = 20, 10, 128
KEPT = ("hidden", True)


@benchmark(
    "CIFAR-10 features without labels in at most 20 min",
    quick={"seconds": 5, "width": 4, "is_made_up": True},
)
def cifar10_encoder(
    context: Context,
    seed: int,
    *,
    seconds: float = 480,
    patches: int = 20,
    batch_size: int = 100,
    learning_rate: float = 0.3,
    invariance: float = 200.0,
    width: int = 64,
    is_made_up: bool = False,
) -> dict[str, Any]:
    """Train for some seconds, keep the features and score them."""
    images, labels, n_train = made_up() if is_made_up else cifar10()
    settings = TrainingSettings(
        n_patches=patches,
        batch_size=batch_size,
        learning_rate=learning_rate,
        invariance=invariance,
        max_seconds=seconds,
    )
    sizes = Architecture(width, n_hidden=64 * width, n_projection=16 * width)
    pixels = torch.from_numpy(images[:n_train]).to(context.device)
    training = Training(pixels, settings, sizes, seed=seed)
    training.run(on_log=lambda row: print(row, flush=True))
    averages = layer_averages(training.network, torch.from_numpy(images), LAYERS)
    found = {}
    for layer, is_centred in itertools.product(LAYERS, (True, False)):
        rows = averages[layer]
        n_components = min(N_COMPONENTS, rows.shape[1])
        features = principal_features(
            rows, n_train, n_components, is_centred=is_centred
        )
        if (layer, is_centred) == KEPT:
            name = "quick_features" if is_made_up else "cifar10_features"
            kept = features.cpu().numpy().astype(np.float16)
            context.cache.mkdir(parents=True, exist_ok=True)
            np.save(context.cache / f"{name}.npy", kept)
        title = f"{layer}, {'centred' if is_centred else 'uncentred'}"
        n_init = 20 if (layer, is_centred) == KEPT else 3
        found[title] = scores(features, labels, n_train, n_init)
    n_crops = training.step * batch_size * patches
    return {
        "saved": found[f"{KEPT[0]}, centred"],
        "candidates": found,
        "steps": training.step,
        "epochs": training.step * batch_size / n_train,
        "training_seconds": training.seconds,
        "crops_per_second": n_crops / training.seconds,
        "history": training.history[:: max(1, len(training.history) // 50)],
    }


def cifar10() -> tuple[NDArray[np.uint8], NDArray[np.int64], int]:
    """Return all images and labels, and how many are of the training part."""
    parts = [load_dataset("cifar10", split=split) for split in ("train", "test")]
    images = np.concatenate([np.array(part.samples) for part in parts])
    labels = np.concatenate([part.labels for part in parts])
    return images, labels, len(parts[0])


def made_up(n_images: int = 400) -> tuple[NDArray[np.uint8], NDArray[np.int64], int]:
    """Return noisy gratings whose class is their direction."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, N_CLASSES, n_images)
    angle = np.pi * labels[:, None, None, None] / N_CLASSES
    rows, columns = np.mgrid[:32, :32]
    phase = rng.uniform(0, 2 * np.pi, (n_images, 3, 1, 1))
    waves = np.sin(np.cos(angle) * rows + np.sin(angle) * columns + phase)
    noisy = 128 + 60 * waves + 20 * rng.standard_normal(waves.shape)
    return noisy.clip(0, 255).astype(np.uint8), labels, n_images * 3 // 4


def scores(
    features: torch.Tensor, labels: NDArray[np.int64], n_train: int, n_init: int
) -> dict[str, float]:
    """Return nearest-neighbour accuracy and k-means scores of unit rows."""
    model = KMeans(N_CLASSES, n_init=n_init, random_state=0)
    model.fit(features.cpu().numpy())
    truth = torch.from_numpy(labels).to(features.device)
    votes = torch.cat(
        [
            F.one_hot(truth[(block @ features[:n_train].T).topk(N_NEIGHBORS).indices])
            .sum(dim=1)
            .argmax(dim=1)
            for block in features[n_train:].split(1000)
        ]
    )
    return {
        "nearest_neighbor_accuracy": float((votes == truth[n_train:]).float().mean()),
        **label_scores(model.labels_, labels),
    }
