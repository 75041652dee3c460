from __future__ import annotations

import errno
import os
import stat
import threading
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
from safetensors.numpy import save_file
from scipy import sparse

from selfexpress import open_rows
from selfexpress.errors import DataError, DegenerateWarning
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
# Far above what any file of these tests needs, far below what a lie would claim.
MEMORY_LIMIT = 20 * 2**20


def small_rows(seed, dtype=np.float32):
    rows = 100 * np.random.default_rng(seed).standard_normal((7, 5))
    return rows.astype(dtype)


def refused(path, words, *, read=read_array, **options):
    """Check that a file is refused in one line that names it, without much memory."""
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=words) as caught:
            read(path, **options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    assert len(message) < 600
    assert peak < MEMORY_LIMIT


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


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "bool"])
def test_rows_as_text_come_back_exactly(dtype, tmp_path, seed):
    rows = small_rows(seed, dtype)
    write_array(tmp_path / "rows.csv", rows)
    actual = read_array(tmp_path / "rows.csv")
    assert actual.dtype == np.float64
    assert np.array_equal(actual.astype(dtype), rows)


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


def test_labels_are_missing_in_no_line_of_a_table(tmp_path):
    path = tmp_path / "labels.csv"
    with pytest.raises(DataError, match="must not be blank"):
        write_labels(path, ["cat", ""])
    path.write_text('label\n0\n""\n1\n')
    refused(path, "label in every line, but line 3 has none", read=read_labels)
    path.write_text("id,label\n7,0\n8,\n9,1\n")
    refused(path, "label in every line, but line 3 has none", read=read_labels)


def test_a_first_row_with_gaps_is_no_header(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("1.0,2.0,NA\n1,0,0\n0,1,0\n")
    refused(path, "line 1, column 3 is 'NA'")
    path.write_text("1.0,,2\n1,0,0\n0,1,0\n")
    refused(path, "column 2")


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


def test_coefficients_without_entries_come_back(tmp_path):
    write_csr(tmp_path / "empty.npz", sparse.csr_array((4, 4)))
    assert read_csr(tmp_path / "empty.npz").shape == (4, 4)


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


def test_header_line_of_text_is_detected(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("\ufeffleft,right\r\n1, 2\r\n\r\n3,4e1\r\n", encoding="utf-8")
    assert read_array(path).tolist() == [[1, 2], [3, 40]]
    assert read_array(path, name="right").tolist() == [[2], [40]]
    path.write_text('1,"2"\n3,nan')
    np.testing.assert_equal(read_array(path), [[1, 2], [3, np.nan]])
    path.write_text("5")
    assert read_array(path).tolist() == [[5]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1,2\n3\n", r"line 2 has 1 and the first 2"),
        ("a,b\n1,2\n\n3,4,5\n", r"line 4 has 3 and the first 2"),
        ("1,2\n3,x\n", r"line 2, column 2 is 'x'"),
        ("1,2\n,3\n", r"line 2, column 1 is ''"),
        ("1;2\n3;4\n", r"line 2, column 1 is '3;4'"),
        (",a\n0,1\n", r"column 1 has no name.*index=False"),
        ("", r"got \(0, \d\)"),
        ("a,b\n", r"got \(0, \d\)"),
    ],
)
def test_text_that_is_not_a_table_of_numbers_is_refused(text, words, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(text)
    refused(path, words)


def test_labels_as_text_files(tmp_path):
    path = tmp_path / "labels.csv"
    for text, expected in [
        ("1\n0\n", [1, 0]),
        ("cluster\n1\n0\n", [1, 0]),
        ("a\nb\n", ["a", "b"]),
        ("label\nb\n", ["b"]),
        ("id,y\n7,a\n8,b\n", ["a", "b"]),
        ("1.0\n-2.0\n", [1, -2]),
    ]:
        path.write_text(text)
        assert read_labels(path).tolist() == expected
    path.write_text("id,kind\n7,a\n8,b\n")
    assert read_labels(path, name="kind").tolist() == ["a", "b"]
    refused(path, "'id', 'kind'", read=read_labels)
    refused(path, "'other'", read=read_labels, name="other")
    path.write_text("0.5\n1\n")
    refused(path, r"whole numbers or text as labels, got \[0\.5\]", read=read_labels)
    path.write_text("a,b\n1\n")
    refused(path, "line 2", read=read_labels)
    path.write_text("")
    refused(path, "one label a sample", read=read_labels)


def test_one_long_text_label_does_not_widen_all_of_them(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("a\n" * 20_000 + "b" * 20_000)
    refused(path, "when unpacked", read=read_labels)


def test_parquet_columns_become_features(tmp_path):
    path = tmp_path / "rows.parquet"
    table = {"a": np.array([1, 2], "i2"), "b": np.array([0.5, 1.5], "f4")}
    index = {"__index_level_0__": [10, 11]}
    pq.write_table(pa.table(table | index), path)
    actual = read_array(path)
    assert actual.dtype == np.float32
    assert actual.tolist() == [[1, 0.5], [2, 1.5]]
    assert read_array(path, name="b").tolist() == [[0.5], [1.5]]
    assert read_labels(path, name="a").tolist() == [1, 2]
    refused(path, "'c', once, but holds 'a', 'b'", name="c")
    refused(path, "Name the one", read=read_labels)


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float32()), pa.large_list(pa.int16()), pa.list_(pa.uint8(), 2)]
)
def test_parquet_lists_become_rows(kind, tmp_path):
    path = tmp_path / "rows.parquet"
    rows = pa.array([[1, 2], [3, 4], [5, 6]], type=kind)
    names = pa.array(["a", "b", "a"]).dictionary_encode()
    # Several row groups: lists arrive in parts.
    pq.write_table(pa.table({"v": rows, "label": names}), path, row_group_size=2)
    actual = read_array(path)
    assert actual.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert actual.dtype == kind.value_type.to_pandas_dtype()
    assert read_labels(path).tolist() == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"v": [[1.0, 2.0], [3.0]]}, "row 1 has 1 values and the first 2"),
        ({"v": [[1.0], None]}, "1 of 2 are empty"),
        ({"v": [[1.0], [None]]}, "1 of 2 are empty"),
        ({"v": [[[1.0]]]}, "others: 'v'"),
        ({"a": [1.0, None]}, "1 of 2 are empty"),
        ({"a": [1.0], "name": ["x"]}, "others: 'name'"),
        ({"v": [["x"]]}, "others: 'v'"),
        ({"a": pa.array([], pa.float32())}, r"got \(0, 1\)"),
    ],
)
def test_parquet_files_without_a_table_of_numbers_are_refused(table, words, tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(table), path)
    refused(path, words)


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


@pytest.mark.parametrize("write", [write_array, write_labels, write_csr])
def test_a_missing_folder_is_named(write, tmp_path):
    values = [1, 2] if write is write_labels else np.eye(2)
    with pytest.raises(DataError, match=r"none must exist .* Create it"):
        write(tmp_path / "none" / "file.npz", values)


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


def test_lines_before_the_names_of_columns_may_be_blank(tmp_path):
    path = tmp_path / "rows.csv"
    for header in ("0,1,2", "a,b,c", '"first\nname",b,c'):
        path.write_text(f"\n\n{header}\n0.5,1,2\n\n3,4,5\n")
        np.testing.assert_array_equal(read_array(path), [[0.5, 1, 2], [3, 4, 5]])


def test_names_that_may_be_a_row_are_told(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("2015,2016,2017\n3,1,2\n")
    with pytest.warns(DegenerateWarning, match=r"'2015,2016,2017', is taken for a row"):
        assert len(read_array(path)) == 2
    for silent in ("1,2,3\n4,5,6\n", "3,1,2\n1,0,4\n", "1,2\n5,7\n"):
        path.write_text(silent)
        assert len(read_array(path)) == 2


def test_labels_of_text_are_stripped_and_gaps_told(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("label\na\nb \n a\nb\n")
    assert read_labels(path).tolist() == ["a", "b", "a", "b"]
    path.write_text("label\na\nb\nNA\nb\n")
    with pytest.warns(
        DegenerateWarning, match="are 'NA', which may stand for one that"
    ):
        assert "NA" in read_labels(path)
    path.write_text("label\n0\n1\nNA\n1\n")
    refused(path, "a label in every line, but some are 'NA'", read=read_labels)


def test_a_sparse_matrix_is_no_array_of_rows(tmp_path):
    path = tmp_path / "sparse.npz"
    for matrix in (sparse.csr_array(np.eye(6)), sparse.bsr_array(np.eye(6)),
                   sparse.dia_array(np.eye(6))):  # fmt: skip
        sparse.save_npz(path, matrix)
        refused(path, "dense matrix, but holds a sparse one")


def test_columns_beside_the_one_of_lists_are_told(tmp_path):
    lists = pa.array([[1, 2], [3, 4]])
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"f0": [0.5, 1.5], "tokens": lists}), path)
    with pytest.warns(DegenerateWarning, match="'tokens', and not from 'f0'"):
        assert read_array(path).tolist() == [[1, 2], [3, 4]]
    pq.write_table(pa.table({"id": [1, 2], "tokens": lists}), path)
    assert read_array(path).tolist() == [[1, 2], [3, 4]]


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


def test_names_that_only_count_are_no_row(tmp_path):
    rows = np.array([[0.5, 1.25, 2.0], [3.0, 4.0, 5.0]])
    path = tmp_path / "rows.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    np.testing.assert_array_equal(read_array(path), rows)
    np.testing.assert_array_equal(read_array(path, name="1")[:, 0], rows[:, 1])


@pytest.mark.parametrize("n_columns", [3, 12])
def test_a_row_that_counts_is_a_row(tmp_path, n_columns):
    rows = np.arange(2 * n_columns).reshape(2, n_columns)
    write_array(tmp_path / "rows.csv", rows)
    np.testing.assert_array_equal(read_array(tmp_path / "rows.csv"), rows)


def test_names_that_count_stand_above_whole_numbers_too(tmp_path):
    rows = np.arange(24).reshape(2, 12) % 7
    pd.DataFrame(rows).to_csv(tmp_path / "rows.csv", index=False)
    np.testing.assert_array_equal(read_array(tmp_path / "rows.csv"), rows)


def test_a_label_that_looks_like_a_name_is_one_if_it_comes_again(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("y\nn\ny\n")
    assert read_labels(path).tolist() == ["y", "n", "y"]
    path.write_text("y\nno\nyes\n")
    assert read_labels(path).tolist() == ["no", "yes"]


@pytest.mark.parametrize(
    ("first", "column"),
    [
        ("1.5,#N/A,2", 2),
        ("1,#N/A,2", 2),
        ("0.5,word,2", 2),
        ("1e3,2,-", 3),
        ("nan,NA,nan", 2),
        ("0,word,0", 2),
        ("word,0.5,0.4,0.3,0.2,0.1,0.3,0.4,0.5", 1),
    ],
)
def test_a_first_row_that_is_hardly_a_header_is_no_header(first, column, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(f"{first}\n" + ",".join("1" * (first.count(",") + 1)) + "\n")
    refused(path, f"line 1, column {column} is .*or name all columns by words")


def test_numbers_and_words_may_name_columns(tmp_path):
    path = tmp_path / "rows.csv"
    wavelengths = "nm," + ",".join(str(400 + 0.5 * place) for place in range(8))
    for header in ("id,0,1", "id,-2,-1,0", "t,1e3,2e3", "a,1.0,2.0", "a,nan,c",
                   "x,inf,z", wavelengths):  # fmt: skip
        row = [7.0 - place for place in range(header.count(",") + 1)]
        path.write_text(f"{header}\n{','.join(map(str, row))}\n")
        np.testing.assert_array_equal(read_array(path), [row])


def test_a_first_row_that_counts_is_written_as_a_row(tmp_path):
    rows = np.array([np.arange(9), [3, 1, 2, 0, 5, 4, 8, 7, 6], np.ones(9)])
    for array in (rows.astype(int), rows):
        write_array(tmp_path / "rows.csv", array)
        np.testing.assert_array_equal(read_array(tmp_path / "rows.csv"), rows)


def test_a_first_label_that_may_be_a_name_is_told(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("animal\ncat\ndog\ncat\ndog\n")
    with pytest.warns(DegenerateWarning, match=r"'animal'.*call it 'label'"):
        assert read_labels(path).tolist() == ["animal", "cat", "dog", "cat", "dog"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DegenerateWarning, match="animal"):
            read_labels(path)
        warnings.simplefilter("ignore")
        read_labels(path)
    for sound in ("label\ncat\ndog\ncat\ndog\n", "cat\ncat\ndog\ndog\n", "a\nb\n"):
        path.write_text(sound)
        read_labels(path)


def test_names_that_may_be_a_row_are_told_once(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("2015,2016,2017\n3,1,2\n")
    with pytest.warns(DegenerateWarning) as told:
        open_rows(path)
    assert len(told) == 1
