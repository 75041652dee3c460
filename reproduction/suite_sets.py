"""The data sets of the suite: rows as users bring them, and their true classes.

Rules of the library were chosen while looking at the sets of ``CHOSEN_ON``; those of
``CONFIRMED_ON`` were named beforehand, and nothing was changed after they were run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import sklearn.datasets
import torch
from numpy.typing import NDArray

from reproduction.inputs import encoder_features
from reproduction.presets import preset_of
from reproduction.record import ROOT, data_folder
from selfexpress import load_dataset, make_subspaces
from selfexpress.features import Scattering2D, Trajectories, Whitening

# What sets are made of, small enough to be carried to another machine; git ignores it.
CACHE = ROOT / ".reproduction-cache" / "suite"

Rows = tuple[NDArray[Any], NDArray[np.int64]]


@dataclass(frozen=True)
class Set:
    """A data set of one piece, or of several that count alike.

    Attributes
    ----------
    title : str
    kind : str
        What its rows are.
    pieces : callable
        Yields rows and classes.
    """

    title: str
    kind: str
    pieces: Callable[[], Iterator[Rows]]


@cache
def _raw(name: str) -> Rows:
    """Return what a set is made of, and keep it where cells on other machines look."""
    kept = CACHE / f"{name}.npz"
    if not kept.is_file():
        samples, labels = _READERS[name]()
        kept.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(kept, samples=samples, labels=labels)
    with np.load(kept) as found:
        return found["samples"], found["labels"]


def _part(name: str, part: slice) -> Rows:
    """Read some images of a data set."""
    data: Any = load_dataset(name)
    return np.asarray(data.samples[part]), np.asarray(data.labels[part])


def _some(name: str) -> Rows:
    """Read 10,000 samples drawn at random."""
    data: Any = load_dataset(name)
    random = np.random.default_rng(0)
    part = np.sort(random.permutation(len(data.labels))[:10_000])
    return np.asarray(data.samples)[part], np.asarray(data.labels)[part]


def _encoded() -> Rows:
    """Read features of a part of CIFAR-10 that an encoder made."""
    X, labels = encoder_features(preset_of("cifar10", False))
    return X[:10_000].astype(np.float16), labels[:10_000]


def _embeddings(path: str) -> Rows:
    """Read unit rows of a sentence encoder and the classes of the texts."""
    table = pq.read_table(data_folder() / path, columns=["embedding", "label"])
    flat = table["embedding"].combine_chunks().flatten()
    rows = flat.to_numpy(zero_copy_only=False).reshape(len(table), -1)
    names = np.array(table["label"].to_pylist())
    return rows, np.unique(names, return_inverse=True)[1]


def _cube(path: str) -> Rows:
    """Read the labelled pixels of a hyperspectral image."""
    with np.load(data_folder() / path) as file:
        is_labelled = file["labels"] > 0
        return file["image"][is_labelled], file["labels"][is_labelled]


def _pixels(name: str) -> Iterator[Rows]:
    images, labels = _raw(name)
    yield images.reshape(len(images), -1).astype(np.float32), labels


def _scattered(name: str, *, n_components: int, whiten: bool) -> Iterator[Rows]:
    """The paper's features, or the same whitened."""
    images, labels = _raw(name)
    images = images.reshape(len(images), *_shape(images))
    scattering = Scattering2D(J=3 if images.shape[1] > 16 else 2, L=8, resize=32)
    features = scattering.fit_transform(torch.from_numpy(images.astype(np.float32)))
    plain: dict[str, Any] = {"center": False, "whiten": False, "normalize": False}
    projection = Whitening(n_components, **({} if whiten else plain))
    yield np.asarray(projection.fit_transform(features), np.float32), labels


def _shape(images: NDArray[Any]) -> tuple[int, ...]:
    if images.ndim == 3:
        return images.shape[1:]
    side = round(images.shape[1] ** 0.5)
    return side, side


def _whitened(name: str, n_components: int) -> Iterator[Rows]:
    rows, labels = next(_pixels(name))
    yield Whitening(n_components).fit_transform(rows), labels


def _tracks() -> Iterator[Rows]:
    known: Any = load_dataset("hopkins155")
    for sequence in known.sequences.values():
        rows = Trajectories().fit_transform(np.asarray(sequence.samples))
        yield rows, np.asarray(sequence.labels)


def _table(load: Callable[..., Any]) -> Iterator[Rows]:
    X, y = load(return_X_y=True)
    yield (X - X.mean(axis=0)) / X.std(axis=0), y


def _digits() -> Iterator[Rows]:
    yield sklearn.datasets.load_digits(return_X_y=True)


def _union(**settings: Any) -> Iterator[Rows]:
    data = make_subspaces(**settings, random_state=0)
    inside = data.labels >= 0
    # Outliers are rows like others, but belong nowhere.
    yield data.X, np.where(inside, data.labels, data.labels.max() + 1)


def _affine(n_subspaces: int, dimension: int, n_features: int) -> Iterator[Rows]:
    """Flats that miss the origin."""
    random = np.random.default_rng(1)
    parts = []
    for _ in range(n_subspaces):
        basis = np.linalg.qr(random.standard_normal((n_features, dimension)))[0].T
        center = random.standard_normal(n_features)
        spread = 0.7 * random.standard_normal((100, dimension))
        parts.append(center / np.linalg.norm(center) + spread @ basis)
    yield np.concatenate(parts), np.repeat(np.arange(n_subspaces), 100)


def _faces_under_lights() -> Iterator[Rows]:
    """Faces of ORL on smooth heads, each under 64 lights: nine dimensions, nearly."""
    from scipy.ndimage import gaussian_filter

    pixels, people = next(_pixels("orl"))
    random = np.random.default_rng(0)
    down, across = np.mgrid[-1:1:32j, -1:1:32j]
    head = np.sqrt(np.clip(1.6 - 0.9 * across**2 - 0.7 * down**2, 0.05, None))
    lights = random.standard_normal((64, 3))
    lights[:, 2] = 0.7 * np.abs(lights[:, 2]) + 0.05
    lights /= np.linalg.norm(lights, axis=1, keepdims=True)
    rows = []
    for person in range(38):
        albedo = pixels[people == people.min() + person][0].reshape(32, 32) / 255
        bumps = 0.8 * gaussian_filter(random.standard_normal((32, 32)), 3)
        slopes = np.gradient(head + bumps, 2 / 31)
        normals = np.stack([-slopes[1], -slopes[0], np.ones_like(head)], axis=-1)
        normals /= np.linalg.norm(normals, axis=-1, keepdims=True)
        shades = np.clip(normals @ lights.T, 0, None)  # (32, 32, 64)
        images = np.moveaxis(gaussian_filter(albedo, 0.5)[..., None] * shades, -1, 0)
        rows.append(images + 0.05 * random.standard_normal(images.shape))
    yield (
        np.clip(np.concatenate(rows), 0, None).reshape(38 * 64, -1),
        np.repeat(np.arange(38), 64),
    )


_READERS: dict[str, Callable[[], Rows]] = {
    "mnist-test": partial(_part, "mnist", slice(60_000, None)),
    "mnist-train": partial(_part, "mnist", slice(10_000)),
    "fashion-test": partial(_part, "fashion-mnist", slice(60_000, None)),
    "fashion-train": partial(_part, "fashion-mnist", slice(10_000)),
    "coil20": partial(_part, "coil20", slice(None)),
    "orl": partial(_part, "orl", slice(None)),
    "letters": partial(_some, "ocr-letters"),
    "cifar10": _encoded,
    "newsgroups": partial(_embeddings, "newsgroups/newsgroups.parquet"),
    "ag-news": partial(_embeddings, "ag-news/ag-news-test.parquet"),
    "indian-pines": partial(_cube, "hyperspectral/indian-pines.npz"),
    "salinas-a": partial(_cube, "hyperspectral/salinas-a.npz"),
}

CHOSEN_ON = {
    "mnist-paper": Set(
        "MNIST test, the paper's features",
        "images",
        partial(_scattered, "mnist-test", n_components=500, whiten=False),
    ),
    "mnist-white": Set(
        "MNIST test, whitened",
        "images",
        partial(_scattered, "mnist-test", n_components=250, whiten=True),
    ),
    "mnist-pixels": Set("MNIST test, pixels", "images", partial(_pixels, "mnist-test")),
    "fashion-paper": Set(
        "Fashion-MNIST test, the paper's features",
        "images",
        partial(_scattered, "fashion-test", n_components=500, whiten=False),
    ),
    "fashion-white": Set(
        "Fashion-MNIST test, whitened",
        "images",
        partial(_scattered, "fashion-test", n_components=250, whiten=True),
    ),
    "fashion-pixels": Set(
        "Fashion-MNIST test, pixels", "images", partial(_pixels, "fashion-test")
    ),
    "cifar10": Set(
        "CIFAR-10, 10,000 rows of an encoder", "images", partial(_pixels, "cifar10")
    ),
    "letters": Set("10,000 letters, pixels", "images", partial(_pixels, "letters")),
    "coil20": Set("COIL-20, pixels", "images", partial(_pixels, "coil20")),
    "orl": Set("ORL faces, pixels", "images", partial(_pixels, "orl")),
    "lights": Set("38 faces under 64 lights, drawn", "images", _faces_under_lights),
    "digits": Set("scikit-learn's digits, pixels", "images", _digits),
    "newsgroups": Set("newsgroups, MiniLM", "text", partial(_pixels, "newsgroups")),
    "ag-news": Set("AG News, MiniLM", "text", partial(_pixels, "ag-news")),
    "indian-pines": Set(
        "Indian Pines, spectra", "spectra", partial(_pixels, "indian-pines")
    ),
    "salinas-a": Set("Salinas-A, spectra", "spectra", partial(_pixels, "salinas-a")),
    "union-10": Set(
        "10 subspaces of dimension 10 in R^20",
        "subspaces",
        partial(_union, n_subspaces=10, dimension=10, n_features=20, n_samples=60),
    ),
    "union-15": Set(
        "15 of dimension 12 in R^24",
        "subspaces",
        partial(_union, n_subspaces=15, dimension=12, n_features=24, n_samples=80),
    ),
    "union-40": Set(
        "40 of dimension 6 in R^18",
        "subspaces",
        partial(_union, n_subspaces=40, dimension=6, n_features=18, n_samples=30),
    ),
    "union-noise": Set(
        "10 of dimension 5 in R^30, noise",
        "subspaces",
        partial(
            _union, n_subspaces=10, dimension=5, n_features=30, n_samples=100, noise=0.4
        ),
    ),
    "union-uneven": Set(
        "8 of dimension 6 in R^20, 30 to 400 rows",
        "subspaces",
        partial(
            _union,
            n_subspaces=8,
            dimension=6,
            n_features=20,
            n_samples=[400, 300, 200, 150, 100, 60, 40, 30],
        ),
    ),
    "union-many": Set(
        "80 of dimension 4 in R^30, 25 rows",
        "subspaces",
        partial(_union, n_subspaces=80, dimension=4, n_features=30, n_samples=25),
    ),
    "union-affine": Set(
        "8 flats of dimension 4 in R^20", "subspaces", partial(_affine, 8, 4, 20)
    ),
    "hopkins155": Set("Hopkins155, levelled tracks", "tracks", _tracks),
    "coil20-white": Set(
        "COIL-20, whitened",
        "images",
        partial(_scattered, "coil20", n_components=150, whiten=True),
    ),
    "wine": Set(
        "wine, standardised", "tables", partial(_table, sklearn.datasets.load_wine)
    ),
    "breast-cancer": Set(
        "breast cancer, standardised",
        "tables",
        partial(_table, sklearn.datasets.load_breast_cancer),
    ),
    "iris": Set(
        "iris, standardised", "tables", partial(_table, sklearn.datasets.load_iris)
    ),
    "orl-white": Set(
        "ORL faces, whitened",
        "images",
        partial(_scattered, "orl", n_components=150, whiten=True),
    ),
    "letters-white": Set(
        "10,000 letters, whitened",
        "images",
        partial(_scattered, "letters", n_components=150, whiten=True),
    ),
    "cifar10-white": Set(
        "CIFAR-10, whitened", "images", partial(_whitened, "cifar10", 64)
    ),
    "mnist-train": Set(
        "10,000 of MNIST's training images, pixels",
        "images",
        partial(_pixels, "mnist-train"),
    ),
    "union-12": Set(
        "12 of dimension 9 in R^18",
        "subspaces",
        partial(_union, n_subspaces=12, dimension=9, n_features=18, n_samples=70),
    ),
}

CONFIRMED_ON = {
    "fashion-train": Set(
        "10,000 of Fashion-MNIST's, pixels", "images", partial(_pixels, "fashion-train")
    ),
    "union-60": Set(
        "60 of dimension 3 in R^12, 15 rows",
        "subspaces",
        partial(_union, n_subspaces=60, dimension=3, n_features=12, n_samples=15),
    ),
    "union-outliers": Set(
        "6 of dimension 5 in R^25, a tenth outliers",
        "subspaces",
        partial(
            _union,
            n_subspaces=6,
            dimension=5,
            n_features=25,
            n_samples=150,
            n_outliers=100,
        ),
    ),
    "union-mixed": Set(
        "8 of dimensions 2 to 9 in R^30, noise",
        "subspaces",
        partial(
            _union,
            n_subspaces=8,
            dimension=[2, 3, 4, 5, 6, 7, 8, 9],
            n_features=30,
            n_samples=100,
            noise=0.3,
        ),
    ),
    "union-affine-12": Set(
        "12 flats of dimension 6 in R^40", "subspaces", partial(_affine, 12, 6, 40)
    ),
}

SETS = CHOSEN_ON | CONFIRMED_ON
