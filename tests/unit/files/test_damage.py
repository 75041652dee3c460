"""Readers of arrays against files that are damaged or that lie."""

from __future__ import annotations

import struct
import zipfile
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from refusals import refused

from selfexpress.errors import DataError
from selfexpress.files.arrays import (
    FORMATS,
    read_array,
    read_csr,
    read_labels,
    write_array,
)

SUFFIXES = list(FORMATS)


def npy_header(shape, descr="<f8", version=(1, 0)):
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}\n"
    size = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + size + text.encode("latin1")


@pytest.mark.parametrize(
    ("shape", "descr"),
    [
        ("(1000000000000, 10)", "<f8"),
        ("(99999999999999999999999, 99999999999)", "<f8"),
        ("(-1, 5)", "<f8"),
        ("(3, 4)", "<f8"),
        ("(2, 2)", "|O"),
        ("(2, 2)", "<c16"),
        ("(1000000000000, 2)", "<U0"),
        ("(2, 2)", "<M8[s]"),
        ("(2, 2)", [("a", "<f8")]),
        ("('a', 2)", "<f8"),
    ],
)
def test_absurd_headers_are_refused_without_room_for_them(shape, descr, tmp_path):
    content = npy_header(shape, descr) + bytes(64)
    path = tmp_path / "rows.npy"
    path.write_bytes(content)
    refused(path, "must|claims")
    refused(path, "must|claims", mmap=True)
    path = tmp_path / "rows.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", content)
    refused(path, "must|claims")


def test_header_of_gigabytes_is_refused_without_room_for_it(tmp_path):
    path = tmp_path / "rows.npy"
    path.write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + bytes(100))
    refused(path, "header cannot be read")
    path.write_bytes(npy_header("(2, 2)", version=(9, 0)) + bytes(32))
    refused(path, "header cannot be read")


class Bomb:
    """Unpickling creates a file: proof that no pickle was loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (type(self.path).touch, (self.path,))


@pytest.mark.parametrize("read", [read_array, read_labels])
def test_pickles_are_never_loaded(read, tmp_path):
    objects = np.array([[Bomb(tmp_path / "ran")]], dtype=object)
    np.save(tmp_path / "rows.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "rows.npz", X=objects)
    refused(tmp_path / "rows.npy", "never read", read=read)
    refused(tmp_path / "rows.npz", "never read", read=read)
    np.savez(
        tmp_path / "csr.npz",
        data=objects, indices=objects, indptr=objects, shape=[1, 1], format=b"csr",
    )  # fmt: skip
    refused(tmp_path / "csr.npz", "never read", read=read_csr)
    assert not (tmp_path / "ran").exists()


def test_names_with_dots_in_an_archive_write_nothing(tmp_path):
    folder = tmp_path / "inside"
    folder.mkdir()
    path = folder / "rows.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../outside.npy", npy_header("(2, 2)") + bytes(32))
    assert read_array(path).tolist() == [[0, 0], [0, 0]]
    assert sorted(tmp_path.rglob("*")) == [folder, path]


def mat_file(values_bytes, shape, *, claimed=None):
    """Write a compressed MATLAB array element by hand."""
    claimed = len(values_bytes) if claimed is None else claimed
    body = (
        struct.pack("<IIII", 6, 8, 6, 0)
        + struct.pack("<IIii", 5, 8, *shape)
        + struct.pack("<HH4s", 1, 1, b"X")
        + struct.pack("<II", 9, claimed)
        + values_bytes
    )
    packed = zlib.compress(struct.pack("<II", 14, len(body)) + body)
    head = b"MATLAB 5.0".ljust(124) + b"\x00\x01IM"
    return head + struct.pack("<II", 15, len(packed)) + packed


def test_matlab_files_that_claim_too_much_are_refused(tmp_path):
    path = tmp_path / "rows.mat"
    path.write_bytes(mat_file(np.eye(2).tobytes(), (2, 2)))
    assert np.array_equal(read_array(path), np.eye(2))
    path.write_bytes(mat_file(np.eye(2).tobytes(), (2**15, 2**15)))
    refused(path, "has 32 bytes of values")
    path.write_bytes(mat_file(np.eye(2).tobytes(), (2**14, 2**14), claimed=2**31))
    refused(path, "more than 200 times its size")
    path.write_bytes(mat_file(np.eye(2).tobytes(), (10, 10), claimed=800))
    refused(path, "must be a whole .mat file")
    path.write_bytes(mat_file(bytes(80 * 2**20), (10 * 2**20, 1)))
    refused(path, "more than 200 times its size")


@pytest.mark.parametrize("values", [np.zeros(10**7), [[0.0] * 10**6] * 10])
def test_parquet_files_that_repeat_one_value_too_often_are_refused(values, tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": values}), path)
    assert path.stat().st_size < 100_000
    refused(path, "when unpacked")


def test_parquet_files_that_repeat_a_long_text_too_often_are_refused(tmp_path):
    path = tmp_path / "labels.parquet"
    pq.write_table(pa.table({"label": ["a" * 10_000] * 10_000}), path)
    assert path.stat().st_size < 50_000
    refused(path, "when unpacked", read=read_labels)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("indices", np.array([0, 5])),
        ("indices", np.array([0, -1])),
        ("indptr", np.array([0, 2, 1, 2])),
        ("indptr", np.array([0, 1, 2])),
        ("indptr", np.array([1, 1, 1, 2])),
        ("data", np.array([1.0])),
        ("data", np.array(["a", "b"])),
        ("shape", np.array([3, 3, 3])),
        ("shape", np.array([2**62, 3])),
        ("format", np.array(b"csc")),
        ("indices", np.array([0.0, 1.0])),
    ],
)
def test_sparse_matrices_whose_parts_do_not_fit_are_refused(part, value, tmp_path):
    parts = {
        "data": np.array([1.0, 2.0]),
        "indices": np.array([0, 1]),
        "indptr": np.array([0, 1, 1, 2]),
        "shape": np.array([3, 3]),
        "format": np.array(b"csr"),
    }
    path = tmp_path / "matrix.npz"
    np.savez(path, **parts)
    assert read_csr(path).nnz == 2
    np.savez(path, **(parts | {part: value}))
    refused(path, "do not fit together", read=read_csr)
    np.savez(path, **{key: parts[key] for key in parts if key != part})
    refused(path, "must hold a sparse matrix", read=read_csr)


def test_types_without_a_numpy_counterpart_are_refused(tmp_path):
    path = tmp_path / "rows.safetensors"
    header = b'{"X":{"dtype":"F8_E4M3","shape":[2,2],"data_offsets":[0,4]}}'
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    refused(path, "plain type")
    path.write_bytes(struct.pack("<Q", 2**63) + header + bytes(8))
    refused(path, "must be a whole .safetensors file")


# Any beginning of a text file is a text file.
@pytest.mark.parametrize("suffix", [name for name in SUFFIXES if name != ".csv"])
def test_every_cut_of_a_file_is_refused(suffix, tmp_path):
    path = tmp_path / f"rows{suffix}"
    write_array(path, np.full((3, 2), 0.5))
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(DataError):
            read_array(path)
