"""Files of every kind: each is read, or refused in one clear sentence.

Every test here is a row of the table in ``docs/reliability.md``. ``tests/fuzz`` reads
damaged files by the hundred thousand; these are the cases by name.
"""

from __future__ import annotations

import json
import pickle
import struct
import zipfile

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from selfexpress import SENet
from selfexpress.errors import CheckpointError, DataError
from selfexpress.files.arrays import FORMATS, read_array, read_labels, write_array
from selfexpress.rows.opening import open_rows

SUFFIXES = list(FORMATS)


def refused(read, path, words="must|claims|would"):
    """Check that a file is refused in one line that names it."""
    with pytest.raises((DataError, CheckpointError), match=words) as caught:
        read(path)
    message = str(caught.value)
    assert path.name in message
    assert "\n" not in message
    assert len(message) < 900


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).normal(size=(9, 4))


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    settings = {"hidden_sizes": (6,), "n_embedding": 5, "max_iter": 30, "n_init": 2}
    model = SENet(2, **settings, gamma=500.0, random_state=0, device="cpu")
    path = tmp_path_factory.mktemp("models") / "digits.selfexpress"
    model.fit(np.random.default_rng(0).normal(size=(12, 4))).save(path)
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_is_not_there(suffix, tmp_path):
    refused(read_array, tmp_path / f"rows{suffix}", "does not exist")
    refused(SENet.load, tmp_path / "model.selfexpress", "there is none")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_folder_where_a_file_should_be(suffix, tmp_path):
    (tmp_path / f"rows{suffix}").mkdir()
    refused(read_array, tmp_path / f"rows{suffix}", "not a regular file")


def test_a_suffix_nobody_knows(tmp_path):
    (tmp_path / "rows.xyz").write_text("1,2")
    refused(read_array, tmp_path / "rows.xyz", "must be one of")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_empty_file(suffix, tmp_path):
    path = tmp_path / f"rows{suffix}"
    path.touch()
    refused(read_array, path)
    refused(read_labels, path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_cut_short(suffix, rows, tmp_path):
    path = tmp_path / f"rows{suffix}"
    write_array(path, rows)
    content = path.read_bytes()
    # A text cut between two numbers is a shorter text: cut it within a line.
    path.write_bytes(content[: len(content) // 2].rstrip(b"\n") + b",")
    refused(read_array, path)


def test_a_model_cut_short_or_with_a_flipped_bit(model_file, tmp_path):
    content = model_file.read_bytes()
    path = tmp_path / "model.selfexpress"
    path.write_bytes(content[:-1])
    refused(SENet.load, path, "damaged or something else")
    for place in (12, -12):
        flipped = bytearray(content)
        flipped[place] ^= 4
        path.write_bytes(flipped)
        refused(SENet.load, path, "damaged or something else")


def test_a_table_with_lines_of_unequal_length(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("1,2\n3,4\n5\n")
    refused(read_array, path, "line 3 has 1 and the first 2")


def test_a_table_with_words_or_gaps(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n3,none\n")
    refused(read_array, path, "line 3, column 2 is 'none'")
    path.write_text("1,2\n3,\n")
    refused(read_array, path, "line 2, column 2 is ''")


def npy(shape, descr="<f8"):
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def test_a_header_that_claims_terabytes(tmp_path):
    path = tmp_path / "rows.npy"
    path.write_bytes(npy("(1000000000000, 1000)") + bytes(64))
    refused(read_array, path, "claims an array of shape")
    refused(open_rows, path, "claims an array of shape")
    path = tmp_path / "rows.safetensors"
    entry = {"dtype": "F64", "shape": [10**12, 10], "data_offsets": [0, 8 * 10**13]}
    header = json.dumps({"X": entry}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(64))
    refused(read_array, path)


def test_an_archive_that_unpacks_to_far_more_than_its_size(tmp_path):
    path = tmp_path / "rows.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        n_values = 10 * 2**20
        archive.writestr("X.npy", npy(f"({n_values}, 1)") + bytes(8 * n_values))
    refused(read_array, path, "more than 200 times its size")


class Bomb:
    """Unpickling creates a file: proof that no pickle was loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (type(self.path).touch, (self.path,))


def test_a_pickle(tmp_path):
    bomb = Bomb(tmp_path / "ran")
    np.save(tmp_path / "rows.npy", np.array([[bomb]]), allow_pickle=True)
    refused(read_array, tmp_path / "rows.npy", "pickled objects are never read")
    (tmp_path / "model.selfexpress").write_bytes(pickle.dumps(bomb))
    refused(SENet.load, tmp_path / "model.selfexpress")
    torch.save({"a": torch.zeros(2)}, tmp_path / "weights.selfexpress")
    refused(SENet.load, tmp_path / "weights.selfexpress")
    assert not (tmp_path / "ran").exists()


def changed_model(model_file, path, change):
    with safe_open(model_file, framework="pt") as file:
        header = json.loads(file.metadata()["selfexpress"])
    del header["checksum"]  # which would find the change before the checks do
    change(header)
    text = json.dumps(header)
    save_file(load_file(model_file), path, metadata={"selfexpress": text})
    return path


def test_a_model_of_a_newer_version(model_file, tmp_path):
    path = changed_model(
        model_file, tmp_path / "m.selfexpress", lambda header: header.update(version=99)
    )
    with pytest.raises(CheckpointError, match=r"version .* must be \d, got 99.*Update"):
        SENet.load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header["parameters"].update(n_embedding=-1),
        lambda header: header["network"].update(hidden_sizes=[10**9]),
        lambda header: header["parameters"].update(gamma=float("nan")),
        lambda header: header["parameters"].update(callbacks="os.system"),
        lambda header: header["parameters"].clear(),
        lambda header: header.update(n_features="4"),
        lambda header: header.update(parameters=[1, [2, [3]]]),
    ],
)
def test_a_model_with_strange_settings(change, model_file, tmp_path):
    path = changed_model(model_file, tmp_path / "m.selfexpress", change)
    refused(SENet.load, path, "damaged or something else")


def test_weights_that_are_not_finite_or_of_another_shape(model_file, tmp_path):
    path = tmp_path / "m.selfexpress"
    with safe_open(model_file, framework="pt") as file:
        header = json.loads(file.metadata()["selfexpress"])
    del header["checksum"]
    metadata = {"selfexpress": json.dumps(header)}
    for change in (
        lambda weight: torch.full_like(weight, float("nan")),
        lambda weight: weight[:-1].clone(),
        lambda weight: weight.double(),
    ):
        tensors = load_file(model_file)
        name = "network.query_tower.0.weight"
        tensors[name] = change(tensors[name])
        save_file(tensors, path, metadata=metadata)
        refused(SENet.load, path, "damaged or something else")


def test_shards_that_do_not_fit_together(rows, tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    with pytest.raises(DataError, match="holds none"):
        open_rows(folder)
    write_array(folder / "a.npy", rows)
    write_array(folder / "b.npy", rows[:, :3])
    with pytest.raises(DataError, match=r"b\.npy has 3 and a\.npy 4"):
        open_rows(folder)
