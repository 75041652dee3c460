from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from selfexpress import SENet, make_subspaces
from selfexpress.cli import inputs
from selfexpress.cli.app import app
from selfexpress.files.arrays import FORMATS, read_labels, write_array
from selfexpress.rows.sources import RowSource


@pytest.fixture(scope="module")
def data():
    return make_subspaces(2, dimension=2, n_features=20, n_samples=30, random_state=0)


@pytest.fixture(scope="module")
def model(data, tmp_path_factory):
    fitted = SENet(
        2,
        hidden_sizes=(32,),
        n_embedding=32,
        max_iter=60,
        affinity="symmetric",
        gamma=200.0,
        learning_rate=1e-3,
        n_eigenvectors=None,
        device="cpu",
        random_state=0,
    ).fit(data.X)
    path = tmp_path_factory.mktemp("model") / "model"
    fitted.save(path)
    return path


def predict(model, data, output, *more):
    words = ["predict", model, data, "-o", output, "--device", "cpu", "--json", *more]
    ran = CliRunner().invoke(app, list(map(str, words)))
    assert ran.exit_code == 0, ran.output
    return json.loads(ran.stdout)


@pytest.mark.parametrize("suffix", FORMATS)
def test_labels_are_those_of_the_model_in_every_format(model, data, suffix, tmp_path):
    np.save(tmp_path / "rows.npy", data.X)
    output = tmp_path / f"labels{suffix}"
    told = predict(model, tmp_path / "rows.npy", output)
    expected = SENet.load(model, device="cpu").predict(data.X)
    np.testing.assert_array_equal(read_labels(output), expected)
    assert told["cluster_sizes"] == np.bincount(expected).tolist()


def test_large_files_and_folders_are_streamed_with_the_same_result(
    model, data, tmp_path, monkeypatch
):
    folder = tmp_path / "shards"
    folder.mkdir()
    for number, part in enumerate(np.split(data.X, [7, 40])):
        write_array(folder / f"part-{number}.parquet", part)
    write_array(tmp_path / "rows.parquet", data.X)
    small = predict(model, tmp_path / "rows.parquet", tmp_path / "small.npy")
    monkeypatch.setattr(inputs, "_SMALL_BYTES", 0)
    assert isinstance(inputs.read_rows(str(tmp_path / "rows.parquet")), RowSource)
    large = predict(model, tmp_path / "rows.parquet", tmp_path / "large.npy")
    shards = predict(model, folder, tmp_path / "shards.npy")
    assert small["cluster_sizes"] == large["cluster_sizes"] == shards["cluster_sizes"]
    for name in ("large.npy", "shards.npy"):
        np.testing.assert_array_equal(
            np.load(tmp_path / name), np.load(tmp_path / "small.npy")
        )


def test_shares_are_written_beside_the_labels(model, data, tmp_path):
    np.save(tmp_path / "rows.npy", data.X)
    shares = tmp_path / "shares.npy"
    predict(model, tmp_path / "rows.npy", tmp_path / "l.npy", "--probabilities", shares)
    found = np.load(shares)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    np.testing.assert_array_equal(found.argmax(axis=1), np.load(tmp_path / "l.npy"))
