from __future__ import annotations

import gzip
import tracemalloc
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import dataset_files
import numpy as np
import pytest

from selfexpress.datasets.loading import (
    Dataset,
    read_dataset,
    read_sequence_dataset,
)
from selfexpress.datasets.locations import find
from selfexpress.errors import DataError

LAYOUTS = sorted(dataset_files.WRITERS)
# Files whose every byte counts; a gzip or WebP file also has bytes that do not.
BIT_EXACT = ["cifar-batches", "emnist", "letters-npz", "mat"]


def read(written: dataset_files.Written, split: str = "full") -> Dataset:
    location = find(written.spec, [written.folder.parent])
    assert location is not None
    return read_dataset(written.spec, location, split=split)


def read_or_refuse(written: dataset_files.Written) -> tuple[Dataset | None, str]:
    try:
        return read(written), ""
    except DataError as error:
        return None, str(error)


def everything(written: dataset_files.Written) -> np.ndarray:
    return np.concatenate(list(written.samples.values()))


def damage(path: Path, kind: str, rng: np.random.Generator) -> None:
    content = bytearray(path.read_bytes())
    if kind == "empty":
        content = bytearray()
    elif kind == "cut by a byte":
        del content[-1]
    elif kind == "cut in half":
        del content[len(content) // 2 :]
    elif kind == "longer":
        content += b"more"
    elif kind == "flipped":
        # In the middle, where every format keeps its data.
        position = int(len(content) * rng.uniform(0.3, 0.7))
        content[position] ^= 1 << int(rng.integers(8))
    elif kind == "another file":
        content = bytearray(rng.bytes(len(content)))
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_read_back_as_written(layout, tmp_path, seed):
    written = dataset_files.WRITERS[layout](tmp_path, seed)

    for part in written.spec.stored:
        dataset = read(written, part)
        np.testing.assert_array_equal(dataset.samples, written.samples[part])
        np.testing.assert_array_equal(dataset.labels, written.labels[part])
        assert dataset.samples.dtype == written.samples[part].dtype
        assert dataset.labels.dtype == np.int64
        assert (dataset.name, dataset.split) == (written.spec.name, part)
        assert dataset.citation == written.spec.citation


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_full_set_is_train_followed_by_test_and_can_be_written_to(
    layout, tmp_path, seed
):
    written = dataset_files.WRITERS[layout](tmp_path, seed)

    dataset = read(written)

    samples = everything(written)
    np.testing.assert_array_equal(dataset.samples, samples)
    np.testing.assert_array_equal(
        dataset.labels, np.concatenate(list(written.labels.values()))
    )
    assert len(dataset) == written.spec.n_samples
    assert dataset.rows.shape == (len(samples), samples[0].size)
    assert np.shares_memory(dataset.rows, dataset.samples)
    assert dataset.samples.flags.writeable
    assert dataset.samples.flags.c_contiguous


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "kind",
    ["empty", "cut by a byte", "cut in half", "longer", "flipped", "another file"],
)
def test_a_damaged_file_is_refused_with_both_checksums(layout, kind, tmp_path, seed):
    rng = np.random.default_rng(seed)
    written = dataset_files.WRITERS[layout](tmp_path, seed)
    files = written.spec.layouts[-1 if layout == "letters-text" else 0].files
    path = written.folder / files[int(rng.integers(len(files)))].path
    damage(path, kind, rng)

    dataset, message = read_or_refuse(written)

    # WebP and gzip files may end in bytes that mean nothing: then nothing changes.
    if dataset is None:
        is_picture = "cannot be decoded" in message
        assert message.count("md5:") + message.count("sha256:") >= 2 - is_picture
        assert path.name in message
    else:
        assert kind in ("cut by a byte", "longer", "flipped")
        assert layout not in BIT_EXACT
        assert np.array_equal(dataset.samples, everything(written))


def test_labels_of_another_order_are_refused_in_a_mosaic(tmp_path, seed):
    written = dataset_files.write_cifar(tmp_path, seed, layout="cifar-mosaics")
    path = written.folder / "labels.npy"
    labels = np.load(path)
    np.save(path, (labels + 1) % 10)
    content = path.read_bytes()
    (layout,) = written.spec.layouts
    # As if someone had recorded the altered labels' own checksum.
    altered = replace(layout.files[-1], checksum=dataset_files.sha256(content))
    layout = replace(layout, files=(*layout.files[:-1], altered))
    spec = replace(written.spec, layouts=(layout,))

    with pytest.raises(
        DataError, match=r"data_batch_1\.bin in .* must have the checks"
    ):
        read(replace(written, spec=spec))


def test_an_unpacked_file_under_the_name_of_a_gzip_file_is_read(tmp_path, seed):
    written = dataset_files.write_mnist(tmp_path, seed)
    for path in written.folder.iterdir():
        path.write_bytes(gzip.decompress(path.read_bytes()))

    np.testing.assert_array_equal(
        read(written, "test").samples, written.samples["test"]
    )


def test_a_gzip_bomb_is_refused_in_little_memory(tmp_path, seed):
    written = dataset_files.write_mnist(tmp_path, seed)
    bomb = gzip.compress(bytes(1 << 25))
    (written.folder / "train-images-idx3-ubyte.gz").write_bytes(bomb)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="goes on after 5504 bytes"):
            read(written)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 22


def test_emnist_is_turned_upright_and_keeps_lower_case_letters_only(tmp_path):
    images = np.zeros((5, 28, 28), np.uint8)
    images[:, 3, 10] = [1, 2, 3, 4, 5]  # stored: column 3, row 10
    labels = np.array([35, 36, 61, 9, 40], np.uint8)  # Z, a, z, 9, e
    written = dataset_files.write_emnist(tmp_path, 0, n_train=5, n_test=5)
    members = {
        f"gzip/emnist-byclass-{part}-{kind}-ubyte.gz": gzip.compress(
            dataset_files.idx_bytes(array)
        )
        for part in ("train", "test")
        for kind, array in (("images-idx3", images), ("labels-idx1", labels))
    }
    dataset_files.write_zip(written.folder / "gzip.zip", members)
    spec = dataset_files.with_checksum(written.spec, written.folder / "gzip.zip")

    dataset = read(replace(written, spec=replace(spec, n_samples=6)))

    assert dataset.samples[:, 10, 3].tolist() == [2, 3, 5, 2, 3, 5]
    assert dataset.samples.sum() == 20
    assert [dataset.class_names[i] for i in dataset.labels[:3]] == ["a", "z", "e"]


@pytest.mark.parametrize("prefix", ["", "gzip/"])
def test_emnist_members_may_lie_in_a_folder_of_the_zip(prefix, tmp_path, seed):
    written = dataset_files.write_emnist(tmp_path, seed, prefix=prefix)

    np.testing.assert_array_equal(read(written, "test").labels, written.labels["test"])


def test_motion_sequences_are_problems_of_their_own(tmp_path, seed):
    written = dataset_files.write_hopkins(tmp_path, seed)
    location = find(written.spec, [tmp_path])

    dataset = read_sequence_dataset(written.spec, location)

    assert len(dataset) == 3
    assert list(dataset.sequences) == sorted(written.samples)
    for name, sequence in dataset.sequences.items():
        np.testing.assert_array_equal(sequence.samples, written.samples[name])
        np.testing.assert_array_equal(sequence.labels, written.labels[name])
        assert sequence.class_names == ("motion 1", "motion 2", "motion 3")
        assert sequence.name == f"hopkins155/{name}"


def test_a_data_set_cannot_be_changed_by_accident(tmp_path, seed):
    dataset = read(dataset_files.write_mnist(tmp_path, seed))

    with pytest.raises(FrozenInstanceError):
        dataset.labels = dataset.labels[::-1]
    assert dataset.n_classes == 10


@pytest.mark.parametrize("size", [(96, 128), (14_000, 14_000)])
def test_a_mosaic_of_another_size_is_refused_before_it_is_decoded(size, tmp_path):
    from PIL import Image

    written = dataset_files.write_cifar(tmp_path, 0, layout="cifar-mosaics")
    path = written.folder / "test_batch.webp"
    Image.new("RGB", size).save(path, "WEBP", lossless=True, method=0, quality=0)
    tracemalloc.start()
    with pytest.raises(DataError, match=r"mosaic of .* but cannot be decoded: "):
        read(written, "test")
    assert tracemalloc.get_traced_memory()[1] < 1 << 22
    tracemalloc.stop()
