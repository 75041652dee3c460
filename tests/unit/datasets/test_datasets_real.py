"""The published data sets: shapes, counts and classes as published."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from selfexpress.datasets import registry
from selfexpress.datasets.loading import Dataset, load_dataset
from selfexpress.errors import ConfigError

MNIST_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def check(dataset: Dataset, shape: tuple[int, ...], counts: list[int]) -> None:
    assert dataset.samples.shape == shape
    assert dataset.labels.dtype == np.int64
    assert np.bincount(dataset.labels).tolist() == counts
    assert dataset.n_classes == len(counts)
    assert len(set(dataset.class_names)) == len(counts)
    assert dataset.samples.flags.writeable


@pytest.fixture(scope="module")
def digits(data_folder):
    return load_dataset("mnist", root=data_folder, download=False)


@pytest.fixture(scope="module")
def colours(data_folder):
    return load_dataset("cifar10", root=data_folder, download=False)


@pytest.fixture(scope="module")
def motions(data_folder):
    return load_dataset("hopkins155", root=data_folder, download=False)


def test_mnist_has_its_published_counts_and_train_comes_first(digits, data_folder):
    both = [a + b for a, b in zip(MNIST_TRAIN, MNIST_TEST, strict=True)]
    check(digits, (70_000, 28, 28), both)
    assert np.bincount(digits.labels[:60_000]).tolist() == MNIST_TRAIN
    # The first digits of each file, as everyone knows them.
    assert digits.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert digits.labels[60_000:60_010].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]

    test = load_dataset("mnist", split="test", root=data_folder, download=False)
    check(test, (10_000, 28, 28), MNIST_TEST)
    np.testing.assert_array_equal(test.samples, digits.samples[60_000:])


def test_mnist_pixels_have_the_published_mean_and_deviation(digits):
    # 0.1307 and 0.3081 of the training images are quoted everywhere.
    shares = np.bincount(digits.samples[:60_000].ravel(), minlength=256) / 47_040_000
    values = np.arange(256) / 255
    mean = float(shares @ values)
    assert round(mean, 4) == 0.1307
    assert round(float(shares @ (values - mean) ** 2) ** 0.5, 4) == 0.3081


def test_fashion_mnist_has_its_published_counts(data_folder):
    train = load_dataset(
        "fashion-mnist", split="train", root=data_folder, download=False
    )
    test = load_dataset("fashion-mnist", split="test", root=data_folder, download=False)

    check(train, (60_000, 28, 28), [6000] * 10)
    check(test, (10_000, 28, 28), [1000] * 10)
    assert train.class_names[train.labels[0]] == "Ankle boot"


def test_fashion_mnist_content_sums_belong_to_the_published_gzip_sums(data_folder):
    for item in registry.SPECS["fashion-mnist"].downloads:
        content = (data_folder / "fashion-mnist" / item.path).read_bytes()
        assert f"md5:{hashlib.md5(content).hexdigest()}" == item.checksum


def test_cifar10_has_its_published_counts_and_train_comes_first(colours, data_folder):
    check(colours, (60_000, 3, 32, 32), [6000] * 10)
    assert np.bincount(colours.labels[:50_000]).tolist() == [5000] * 10
    # The first training image is a frog, the first test image a cat.
    assert colours.class_names[colours.labels[0]] == "frog"
    assert colours.class_names[colours.labels[50_000]] == "cat"

    test = load_dataset("cifar10", split="test", root=data_folder, download=False)
    check(test, (10_000, 3, 32, 32), [1000] * 10)
    np.testing.assert_array_equal(test.samples, colours.samples[50_000:])


def test_cifar10_channels_have_the_published_means(colours):
    # 0.4914, 0.4822, 0.4465 of the training images are quoted everywhere: they fix
    # the order of the channels.
    means = colours.samples[:50_000].mean(axis=(0, 2, 3), dtype=np.float64) / 255
    assert means.round(4).tolist() == [0.4914, 0.4822, 0.4465]


def test_coil20_has_72_upright_images_of_each_object(data_folder):
    dataset = load_dataset("coil20", root=data_folder, download=False)

    check(dataset, (1440, 32, 32), [72] * 20)
    assert dataset.samples.min() == 0.0
    assert dataset.samples.max() == 1.0
    # The fifth object is a flat box: it fills a row of pixels rather than a column.
    box = dataset.samples[4 * 72]
    assert box.max(axis=0).min() > 0.2
    assert box.max(axis=1).min() < 0.1


def test_orl_has_10_faces_of_each_person(data_folder):
    dataset = load_dataset("orl", root=data_folder, download=False)

    check(dataset, (400, 32, 32), [10] * 40)
    assert dataset.samples.dtype == np.uint8
    # Upright faces are nearly symmetric from left to right and not from top to bottom.
    mean = dataset.samples.mean(axis=0)
    assert np.abs(mean - mean[:, ::-1]).mean() < 0.3 * np.abs(mean - mean[::-1]).mean()


def test_ocr_letters_has_its_published_counts(data_folder):
    dataset = load_dataset("ocr-letters", root=data_folder, download=False)

    counts = np.bincount(dataset.labels).tolist()
    check(dataset, (52_152, 16, 8), counts)
    assert len(counts) == 26
    # The set begins with many hands writing "commanding" without its first letter.
    word = "".join(dataset.class_names[i] for i in dataset.labels[:9])
    assert word == "ommanding"
    assert set(np.unique(dataset.samples)) == {0, 1}


def test_hopkins155_has_120_sequences_of_two_motions_and_35_of_three(motions):
    counts = [sequence.n_classes for sequence in motions.sequences.values()]

    assert len(motions) == 156
    assert np.bincount(counts).tolist() == [0, 0, 120, 35, 0, 1]
    assert motions.sequences["dancing"].n_classes == 5
    for sequence in motions.sequences.values():
        assert sequence.samples.ndim == 2
        assert len(sequence.samples) == len(sequence.labels)
        assert np.bincount(sequence.labels).min() > 0
        assert np.isfinite(sequence.samples).all()


def test_each_motion_of_hopkins155_spans_at_most_four_dimensions(motions):
    # Trajectories of one rigid motion lie near a subspace of dimension four: u and v of
    # every frame must therefore stay together in a row.
    shares = []
    for name, sequence in motions.sequences.items():
        if name == "dancing":
            continue
        for motion in range(sequence.n_classes):
            rows = sequence.samples[sequence.labels == motion]
            energy = np.linalg.svd(rows, compute_uv=False) ** 2
            shares.append(energy[:4].sum() / energy.sum())
    assert np.median(shares) > 0.9999


def test_one_motion_sequence_is_loaded_by_its_name(motions, data_folder):
    one = load_dataset("hopkins155/1R2RC", root=data_folder, download=False)

    assert one.samples.shape == (459, 58)
    np.testing.assert_array_equal(one.samples, motions.sequences["1R2RC"].samples)
    with pytest.raises(ConfigError, match="one of the 156 of hopkins155"):
        load_dataset("hopkins155/1R2RX", root=data_folder, download=False)
