from __future__ import annotations

import errno
import os
import stat
import threading

import numpy as np
import pytest
import scipy.io
from refusals import refused
from safetensors.numpy import save_file
from scipy import sparse

from selfexpress.errors import DataError
from selfexpress.files.arrays import (
    FORMATS,
    read_array,
    read_csr,
    read_labels,
    write_array,
    write_csr,
    write_labels,
)

SUFFIXES = list(FORMATS)
TYPED = [suffix for suffix in SUFFIXES if suffix != ".csv"]


def small_rows(seed, dtype=np.float32):
    rows = 100 * np.random.default_rng(seed).standard_normal((7, 5))
    return rows.astype(dtype)


@pytest.mark.parametrize("suffix", TYPED)
@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "uint8", "int16", "int64"]
)
def test_rows_come_back_in_their_own_type(suffix, dtype, tmp_path, seed):
    rows = small_rows(seed, dtype)
    write_array(tmp_path / f"rows{suffix}", rows)
    actual = read_array(tmp_path / f"rows{suffix}")
    if suffix == ".mat" and dtype == "float16":
        # MATLAB has no such type; SciPy stores the next one.
        actual = actual.astype("float16")
    assert actual.dtype == rows.dtype
    assert np.array_equal(actual, rows)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".mat", ".safetensors"])
def test_images_keep_their_shape(suffix, tmp_path):
    images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    write_array(tmp_path / f"images{suffix}", images)
    assert np.array_equal(read_array(tmp_path / f"images{suffix}"), images)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "layout",
    [
        lambda rows: np.asfortranarray(rows),
        lambda rows: np.repeat(rows, 2, axis=1)[:, ::2],
        lambda rows: rows.astype(">f4"),
    ],
    ids=["fortran", "strided", "foreign"],
)
def test_layout_in_memory_does_not_matter(suffix, layout, tmp_path, seed):
    rows = small_rows(seed)
    write_array(tmp_path / f"rows{suffix}", layout(rows))
    actual = read_array(tmp_path / f"rows{suffix}")
    assert actual.dtype.isnative
    assert np.array_equal(actual.astype(np.float32), rows)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("labels", [[3, -1, 3], [True, False, True], [2.0, 0.0, 1.0]])
def test_labels_come_back_as_whole_numbers(suffix, labels, tmp_path):
    write_labels(tmp_path / f"labels{suffix}", labels)
    actual = read_labels(tmp_path / f"labels{suffix}")
    assert actual.dtype.kind in "biu"
    assert actual.tolist() == labels


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".parquet"])
def test_labels_may_be_text(suffix, tmp_path):
    labels = ["cat", "dog, small", "label", 'a "cat"', "наука"]
    write_labels(tmp_path / f"labels{suffix}", labels)
    assert read_labels(tmp_path / f"labels{suffix}").tolist() == labels


@pytest.mark.parametrize("suffix", [".mat", ".safetensors"])
def test_text_labels_are_refused_where_they_cannot_be_stored(suffix, tmp_path):
    with pytest.raises(DataError, match=r"Write text labels as \.npy or \.csv"):
        write_labels(tmp_path / f"labels{suffix}", ["a", "b"])
    assert not list(tmp_path.iterdir())


def test_coefficients_come_back_and_scipy_reads_them_too(tmp_path, seed):
    matrix = sparse.random_array((9, 6), density=0.3, random_state=seed, format="csr")
    path = tmp_path / "coefficients.npz"
    write_csr(path, matrix)
    assert (read_csr(path) != matrix).nnz == 0
    assert (sparse.load_npz(path) != matrix).nnz == 0
    sparse.save_npz(path, sparse.csr_matrix(matrix), compressed=True)
    assert (read_csr(path) != matrix).nnz == 0


@pytest.mark.parametrize("suffix", [".npz", ".mat", ".safetensors"])
def test_the_array_is_found_by_name_convention_or_shape(suffix, tmp_path):
    def save(**arrays):
        path = tmp_path / f"file{suffix}"
        writers = {
            ".npz": lambda: np.savez(path, **arrays),
            ".mat": lambda: scipy.io.savemat(path, arrays),
            ".safetensors": lambda: save_file(arrays, path),
        }
        writers[suffix]()
        return path

    one, two = np.full((3, 2), 1.0), np.full((4, 5), 2.0)
    names = np.array([1.0, 0.0, 2.0]).reshape(-1, 1)

    only = save(a=one)
    assert read_array(only)[0, 0] == 1
    usual = save(a=one, fea=two)
    assert read_array(usual)[0, 0] == 2
    assert read_array(usual, name="a")[0, 0] == 1
    by_shape = save(a=one, b=names)
    assert read_array(by_shape)[0, 0] == 1
    assert read_labels(by_shape).tolist() == [1, 0, 2]
    assert read_labels(save(a=one, gnd=names, c=names)).tolist() == [1, 0, 2]
    refused(save(a=one, b=two), "'a', 'b'.*Name the one")
    refused(save(a=one, b=two), "'c', but holds 'a', 'b'", name="c")
    refused(save(a=one, b=two), "Name the one", read=read_labels)


def test_matlab_files_read_as_scipy_reads_them(data_folder):
    for path in (data_folder / "coil20").glob("*.mat"):
        expected = scipy.io.loadmat(path)
        assert np.array_equal(read_array(path), expected["fea"])
        assert np.array_equal(read_labels(path), expected["gnd"].ravel())


@pytest.mark.parametrize("compress", [False, True])
def test_matlab_types_read_as_scipy_reads_them(compress, tmp_path, seed):
    arrays = {
        f"{dtype}_{n_columns}": small_rows(seed, dtype)[:3, :n_columns]
        for dtype in ("f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "b1")
        for n_columns in (1, 3)
    }
    other = {"text": "abc", "cell": np.array([1, "a"], dtype=object), "s": {"t": 1}}
    path = tmp_path / "types.mat"
    scipy.io.savemat(path, {**other, **arrays}, do_compression=compress)
    expected = scipy.io.loadmat(path)
    for name in arrays:
        actual = read_array(path, name=name)
        assert actual.dtype == expected[name].dtype
        assert np.array_equal(actual, expected[name])
    for name in other:
        refused(path, "must hold real numbers", name=name)


def test_matlab_files_of_other_versions_are_refused(tmp_path):
    path = tmp_path / "file.mat"
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(600))
    refused(path, r"7\.3 .*'-v7'")
    path.write_bytes(b"MATLAB 7.3 MAT-file".ljust(512) + b"\x89HDF\r\n\x1a\n")
    refused(path, r"7\.3 .*'-v7'")
    scipy.io.savemat(path, {"X": np.ones((2, 2))}, format="4")
    refused(path, "'-v7'")


@pytest.mark.parametrize("order", ["C", "F"])
def test_mapped_rows_stay_on_disk(order, tmp_path, seed):
    rows = np.asarray(small_rows(seed), order=order)
    np.save(tmp_path / "rows.npy", rows)
    mapped = read_array(tmp_path / "rows.npy", mmap=True)
    assert isinstance(mapped, np.memmap)
    assert not mapped.flags.writeable
    assert np.array_equal(mapped, rows)


def test_mapping_checks_the_file_first(tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, np.ones((50, 4)))
    path.write_bytes(path.read_bytes()[:-1])
    refused(path, "cut short", mmap=True)
    np.save(path, np.ones((0, 4)))
    refused(path, r"got \(0, 4\)", mmap=True)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "rows.csv"
    write_array(path, np.ones((2, 2)))
    before = path.read_bytes()
    with pytest.raises(DataError, match="Flatten"):
        write_array(path, np.ones((2, 2, 2)))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_replaces_the_old_file_and_obeys_the_umask(tmp_path):
    path = tmp_path / "rows.npy"
    write_array(path, np.ones((2, 2)))
    write_array(path, np.zeros((3, 1)))
    assert read_array(path).shape == (3, 1)
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda path: write_array(path / "a.npy", [1, 2]), r"got \(2,\)"),
        (lambda path: write_array(path / "a.npy", [["a"]]), "real numbers"),
        (lambda path: write_array(path / "a.npy", [[1j]]), "complex128"),
        (lambda path: write_array(path / "a.npy", [[None]]), "object"),
        (lambda path: write_labels(path / "a.npy", [[1, 2], [3, 4]]), r"\(2, 2\)"),
        (lambda path: write_labels(path / "a.npy", [0.5]), "whole numbers"),
        (lambda path: write_csr(path / "a.npy", sparse.eye_array(2)), r"\.npz"),
        (
            lambda path: write_array(path / "a.xls", np.eye(2)),
            r"\.npy, \.npz, .*'\.xls'",
        ),
        (lambda path: read_array(path / "a"), r"\.safetensors, got ''"),
        (lambda path: read_array(path / "a.npy"), "does not exist"),
        (lambda path: read_csr(path / "a.npz"), "does not exist"),
        (lambda path: read_csr(path / "a.csv"), "must lie in an .npz file, got"),
        (lambda path: write_array(path, np.eye(2)), "suffix"),
    ],
)
def test_what_cannot_be_done_is_said(call, words, tmp_path):
    with pytest.raises(DataError, match=words):
        call(tmp_path)
    assert not list(tmp_path.iterdir())


def test_folders_and_pipes_are_not_files(tmp_path):
    (tmp_path / "folder.npy").mkdir()
    refused(tmp_path / "folder.npy", "not a regular file")
    os.mkfifo(tmp_path / "pipe.npy")
    refused(tmp_path / "pipe.npy", "not a regular file")
    for name, what in (("folder", "a folder"), ("pipe", "a device or a pipe")):
        with pytest.raises(DataError, match=f"can be written, but is {what}"):
            write_array(tmp_path / f"{name}.npy", np.eye(2))


def test_links_stay_and_protected_files_are_not_replaced(tmp_path):
    write_array(tmp_path / "target.npy", np.eye(2))
    (tmp_path / "link.npy").symlink_to("target.npy")
    write_array(tmp_path / "link.npy", np.eye(3))
    assert (tmp_path / "link.npy").is_symlink()
    assert len(read_array(tmp_path / "target.npy")) == 3
    (tmp_path / "target.npy").chmod(0o444)
    with pytest.raises(DataError, match="protected against writing"):
        write_array(tmp_path / "target.npy", np.eye(2))
    assert len(read_array(tmp_path / "target.npy")) == 3


def test_a_sparse_matrix_is_no_array_of_rows(tmp_path):
    path = tmp_path / "sparse.npz"
    for matrix in (sparse.csr_array(np.eye(6)), sparse.bsr_array(np.eye(6)),
                   sparse.dia_array(np.eye(6))):  # fmt: skip
        sparse.save_npz(path, matrix)
        refused(path, "dense matrix, but holds a sparse one")


def test_a_full_disk_is_reported_and_the_old_file_stays(tmp_path, monkeypatch):
    path = tmp_path / "labels.npy"
    write_labels(path, [1, 2])

    def fail(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(DataError, match="No space left on device"):
        write_labels(path, [3])
    assert read_labels(path).tolist() == [1, 2]
    assert list(tmp_path.iterdir()) == [path]


def test_reading_in_threads_gives_each_its_own_array(tmp_path):
    results = {}

    def work(number):
        path = tmp_path / f"{number}.npz"
        write_array(path, np.full((4, 4), number))
        results[number] = read_array(path)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((results[number] == number).all() for number in range(8))
