from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from selfexpress import EnSC, SENet, make_subspaces
from selfexpress.cli import inputs
from selfexpress.files.arrays import FORMATS, read_labels, write_array
from selfexpress.rows.sources import RowSource


@pytest.fixture(scope="module")
def data():
    return make_subspaces(2, dimension=2, n_features=20, n_samples=30, random_state=0)


@pytest.fixture(scope="module")
def model(data, tmp_path_factory):
    fitted = SENet(
        2, hidden_sizes=(32,), n_embedding=32, max_iter=60, affinity="symmetric",
        gamma=200.0, learning_rate=1e-3, n_eigenvectors=None, device="cpu",
        random_state=0,
    ).fit(data.X)  # fmt: skip
    path = tmp_path_factory.mktemp("model") / "model"
    fitted.save(path)
    return path


@pytest.fixture
def predict(call, model):
    def run(rows, output, *more):
        words = ("predict", model, rows, "-o", output, "--device", "cpu", "--json")
        ran = call(*words, *more)
        assert ran.exit_code == 0, ran.output
        return json.loads(ran.stdout)

    return run


@pytest.mark.parametrize("suffix", FORMATS)
def test_labels_are_those_of_the_model_in_every_format(model, data, predict, suffix):
    np.save("rows.npy", data.X)
    found = predict("rows.npy", f"labels{suffix}")
    expected = SENet.load(model, device="cpu").predict(data.X)
    np.testing.assert_array_equal(read_labels(f"labels{suffix}"), expected)
    assert found["cluster_sizes"] == np.bincount(expected).tolist()


def test_models_of_ensc_predict_as_well(data, call):
    np.save("rows.npy", data.X)
    model = EnSC(2, random_state=0).fit(data.X)
    model.save("ensc.selfexpress")
    words = ("predict", "ensc.selfexpress", "rows.npy", "-o", "labels.npy")
    assert call(*words, "--device", "cpu").exit_code == 0
    np.testing.assert_array_equal(np.load("labels.npy"), model.predict(data.X))


def test_large_files_and_folders_are_streamed_with_the_same_result(
    data, predict, monkeypatch
):
    Path("shards").mkdir()
    for number, part in enumerate(np.split(data.X, [7, 40])):
        write_array(f"shards/part-{number}.parquet", part)
    write_array("rows.parquet", data.X)
    predict("rows.parquet", "small.npy")
    monkeypatch.setattr(inputs, "_SMALL_BYTES", 0)
    assert isinstance(inputs.read_rows("rows.parquet"), RowSource)
    for rows in ("rows.parquet", "shards"):
        predict(rows, "large.npy")
        np.testing.assert_array_equal(np.load("large.npy"), np.load("small.npy"))


def test_shares_are_written_beside_the_labels(data, predict):
    np.save("rows.npy", data.X)
    predict("rows.npy", "labels.npy", "--probabilities", "shares.npy")
    found = np.load("shares.npy")
    np.testing.assert_allclose(found.sum(axis=1), 1)
    np.testing.assert_array_equal(found.argmax(axis=1), np.load("labels.npy"))
