"""CIFAR-10 features learned without labels: train, extract, evaluate, record.

    python benchmarks/train_cifar10_encoder.py --data FOLDER --seconds 480 --output OUT

``--data`` may be repeated when the files lie in several folders; they may be lossless
WebP mosaics with ``labels.npy``, ``cifar-10-binary.tar.gz`` or the unpacked
``cifar-10-batches-bin``. Only the 50,000 training images train the encoder and its
principal axes; labels serve the evaluation alone. Written to OUT:

- ``cifar10_features.npy``: float16, (60000, 128), training images first
- ``cifar10_encoder/``: the encoder in float16, in files of at most 15 MiB
- a record with 20-NN accuracy and k-means scores of every candidate feature

The features saved are fixed beforehand by the encoder's defaults (hidden layer,
centred); the other candidates are evaluated for comparison. ``--quick`` runs the same
path in about a minute on made-up images, with no data needed.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from reproduction.encoder.axes import fit_principal_axes
from reproduction.encoder.estimator import CodingRateEncoder
from reproduction.encoder.resnet import LAYERS
from reproduction.timing import write_record
from selfexpress.datasets.loading import load_dataset
from selfexpress.errors import DegenerateWarning
from selfexpress.metrics import (
    adjusted_rand,
    clustering_accuracy,
    normalized_mutual_info,
)

N_NEIGHBORS = 20
N_CLASSES = 10
MAX_FILE_BYTES = 15 * 2**20
STARTED = time.perf_counter()


@dataclass(frozen=True)
class Problem:
    """All images and labels, training part first."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    n_train: int


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    if not options.quick:
        # Collapsed features would waste the rest of the time.
        warnings.simplefilter("error", DegenerateWarning)
    options.output.mkdir(parents=True, exist_ok=True)
    problem = made_up() if options.quick else read(options.data)
    say(f"read {len(problem.images)} images")

    encoder = build(options)
    encoder.fit(problem.images[: problem.n_train])
    n_crops = encoder.n_steps_ * options.batch_size * options.patches
    say(f"trained: {encoder.n_steps_} steps, {n_crops / encoder.seconds_:.0f} crops/s")
    encoder.save(
        options.output / "cifar10_encoder",
        dtype="float16",
        max_file_bytes=MAX_FILE_BYTES,
    )
    averages = encoder.represent(problem.images)
    features = encoder.reduce(averages[encoder.layer]).astype(np.float16)
    np.save(options.output / "cifar10_features.npy", features)
    say(f"saved features {features.shape}")

    results: dict[str, Any] = {
        "steps": encoder.n_steps_,
        "epochs": encoder.n_steps_ * options.batch_size / problem.n_train,
        "training_seconds": encoder.seconds_,
        "crops_per_second": n_crops / encoder.seconds_,
        "saved": scores(features.astype(np.float32), problem, n_init=20),
        "saved_is": f"{encoder.layer}, centred",
        "candidates": {},
        "history": encoder.history_[:: max(1, len(encoder.history_) // 50)],
    }
    say(f"saved features: {results['saved']}")
    note(results, options)
    for layer, is_centred in itertools.product(LAYERS, (True, False)):
        if (layer, is_centred) != (encoder.layer, True):
            name = f"{layer}, {'centred' if is_centred else 'uncentred'}"
            rows = reduced(averages[layer], problem.n_train, is_centred=is_centred)
            results["candidates"][name] = scores(rows, problem, n_init=3)
            say(f"{name}: {results['candidates'][name]}")
    results["whole_run_seconds"] = time.perf_counter() - STARTED
    say(f"wrote {note(results, options)}")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, action="append", default=[], help="may be repeated")
    add("--seconds", type=float, default=480, help="time to train for")
    add("--output", type=Path, required=True)
    add("--seed", type=int, default=0)
    add("--checkpoint", type=Path, help="default: in the output folder")
    add("--checkpoint-seconds", type=float, default=120)
    add("--resume", action="store_true", help="go on from the checkpoint")
    add("--patches", type=int, default=20)
    add("--batch-size", type=int, default=100)
    add("--learning-rate", type=float, default=0.3)
    add("--invariance", type=float, default=200)
    add("--width", type=int, default=64, help="8 for a try on a CPU")
    add("--quick", action="store_true", help="made-up images, 15 s of training")
    options = parser.parse_args(arguments)
    if options.quick:
        options.seconds = min(options.seconds, 15)
        options.checkpoint_seconds = min(options.checkpoint_seconds, 5)
    elif not options.data:
        parser.error("--data must name the folders with CIFAR-10's files")
    if options.checkpoint is None:
        options.checkpoint = options.output / "training.checkpoint"
    if not options.resume:
        options.checkpoint.unlink(missing_ok=True)
    return options


def read(folders: list[Path]) -> Problem:
    """Read CIFAR-10 from files that may be spread over several folders."""
    with tempfile.TemporaryDirectory() as root:
        together = Path(root) / "cifar10"
        together.mkdir()
        for folder in folders:
            inner = folder / "cifar10"
            source = inner if inner.is_dir() else folder
            for file in sorted(source.resolve(strict=True).iterdir()):
                if not (together / file.name).exists():
                    (together / file.name).symlink_to(file)
        train, test = (
            load_dataset("cifar10", root=root, split=split, download=False)
            for split in ("train", "test")
        )
    return Problem(
        np.concatenate([train.samples, test.samples]),
        np.concatenate([train.labels, test.labels]),
        len(train),
    )


def made_up(n_images: int = 400) -> Problem:
    """Return noisy gratings whose class is their direction."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, N_CLASSES, n_images)
    angle = np.pi * labels[:, None, None, None] / N_CLASSES
    rows, columns = np.mgrid[:32, :32]
    phase = rng.uniform(0, 2 * np.pi, (n_images, 3, 1, 1))
    waves = np.sin(np.cos(angle) * rows + np.sin(angle) * columns + phase)
    noisy = 128 + 60 * waves + 20 * rng.standard_normal(waves.shape)
    return Problem(noisy.clip(0, 255).astype(np.uint8), labels, n_images * 3 // 4)


def build(options: argparse.Namespace) -> CodingRateEncoder:
    return CodingRateEncoder(
        n_epochs=None,
        max_seconds=options.seconds,
        n_patches=options.patches,
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        invariance=options.invariance,
        width=options.width,
        grid_size=2 if options.quick else 4,
        checkpoint=options.checkpoint,
        checkpoint_seconds=options.checkpoint_seconds,
        on_log=Ticker(),
        random_state=options.seed,
    )


class Ticker:
    """Says a line of the history every few seconds."""

    def __init__(self, interval: float = 10.0) -> None:
        self.interval = interval
        self.last = -interval

    def __call__(self, row: dict[str, float]) -> None:
        if row["seconds"] - self.last >= self.interval:
            self.last = row["seconds"]
            say(", ".join(f"{name} {value:.5g}" for name, value in row.items()))


def reduced(
    averages: NDArray[np.float32], n_train: int, *, is_centred: bool
) -> NDArray[np.float32]:
    """Return 128 unit-norm principal components by the training part's axes."""
    rows = torch.from_numpy(averages).to(device())
    n_components = min(128, rows.shape[1])
    axes = fit_principal_axes(
        rows[:n_train].split(8192), n_components, is_centred=is_centred
    )
    return axes.reduce(rows).cpu().numpy()


def scores(
    features: NDArray[np.float32], problem: Problem, *, n_init: int
) -> dict[str, float]:
    """Return nearest-neighbour accuracy and k-means scores of unit-norm features."""
    kmeans = KMeans(N_CLASSES, n_init=n_init, random_state=0).fit(features)
    return {
        "nearest_neighbor_accuracy": nearest_neighbor_accuracy(features, problem),
        "kmeans_acc": clustering_accuracy(kmeans.labels_, problem.labels),
        "kmeans_nmi": normalized_mutual_info(kmeans.labels_, problem.labels),
        "kmeans_ari": adjusted_rand(kmeans.labels_, problem.labels),
    }


def nearest_neighbor_accuracy(features: NDArray[np.float32], problem: Problem) -> float:
    """Return how often 20 training images' majority names a test image's class."""
    rows = F.normalize(torch.from_numpy(features).to(device()), dim=1)
    labels = torch.from_numpy(problem.labels).to(device())
    train, test = rows[: problem.n_train], rows[problem.n_train :]
    predicted = []
    for block in test.split(1000):
        nearest = (block @ train.T).topk(N_NEIGHBORS, dim=1).indices
        votes = F.one_hot(labels[nearest], N_CLASSES).sum(dim=1)  # (block, classes)
        predicted.append(votes.argmax(dim=1))
    return float((torch.cat(predicted) == labels[problem.n_train :]).float().mean())


def note(results: dict[str, Any], options: argparse.Namespace) -> Path:
    config = {
        name: value
        for name, value in build(options).get_params().items()
        if name not in ("on_log", "checkpoint", "random_state")
    }
    return write_record(
        "cifar10_encoder",
        results,
        config,
        seed=options.seed,
        device=device(),
        folder=options.output,
    )


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def say(text: str) -> None:
    print(f"[{time.perf_counter() - STARTED:6.1f} s] {text}", flush=True)


if __name__ == "__main__":
    main()
