from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

from selfexpress import SENet, make_subspaces
from selfexpress.affinity import assignment
from selfexpress.errors import ConfigError
from selfexpress.estimators import streaming
from selfexpress.metrics import adjusted_rand, clustering_accuracy
from selfexpress.ops.memory import free_bytes
from selfexpress.rows.opening import open_rows
from selfexpress.rows.sources import ArraySource

SETTINGS = {
    "refine": None,
    "hidden_sizes": (64,),
    "n_embedding": 64,
    "max_iter": 200,
    "n_train_samples": 100,
    "batch_size": 50,
    "affinity": "symmetric",
    "gamma": 200.0,
    "learning_rate": 1e-3,
    "n_eigenvectors": None,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def data():
    return make_subspaces(3, dimension=2, n_features=30, n_samples=100, random_state=0)


@pytest.fixture(scope="module")
def sampled(data):
    model = SENet(3, n_cluster_samples=90, random_state=0, **SETTINGS)
    return model.fit(data.X)


@pytest.fixture(scope="module")
def exact(data):
    model = SENet(3, n_cluster_samples=None, random_state=0, **SETTINGS)
    return model.fit(data.X)


def test_a_sample_is_clustered_and_names_all_other_rows(data, sampled):
    index = sampled.sample_indices_
    assert index.tolist() == sorted(set(index.tolist()))
    assert sampled.coefficients_.shape == sampled.affinity_matrix_.shape == (90, 90)
    assert len(sampled.embedding_) == len(index) == 90
    np.testing.assert_array_equal(sampled.references_.labels, sampled.labels_[index])
    others = np.setdiff1d(np.arange(300), index)
    np.testing.assert_array_equal(
        sampled.predict(data.X[others]), sampled.labels_[others]
    )


def test_labels_of_a_sample_agree_with_those_of_all_pairs(data, sampled, exact):
    np.testing.assert_array_equal(exact.sample_indices_, np.arange(300))
    assert exact.coefficients_.shape == (300, 300)
    assert adjusted_rand(exact.labels_, sampled.labels_) >= 0.97
    assert clustering_accuracy(sampled.labels_, data.labels) >= 0.98


def test_a_file_on_disk_gives_the_labels_of_the_array(data, sampled, tmp_path):
    np.save(tmp_path / "rows.npy", data.X)
    source = open_rows(tmp_path / "rows.npy")
    model = SENet(3, n_cluster_samples=90, random_state=0, **SETTINGS).fit(source)
    np.testing.assert_array_equal(model.labels_, sampled.labels_)


def test_labels_come_in_blocks_in_order(data, sampled, monkeypatch):
    monkeypatch.setitem(assignment._BLOCK_ROWS, "cpu", 64)
    blocks = list(sampled.predict_blocks(ArraySource(data.X)))
    assert [len(block) for block in blocks] == [64, 64, 64, 64, 44]
    whole = sampled.predict(data.X)
    np.testing.assert_array_equal(np.concatenate(blocks), whole)
    shares = sampled.predict_proba(data.X)
    np.testing.assert_array_equal(shares.argmax(axis=1), whole)


def test_a_saved_sample_predicts_alike(data, sampled, tmp_path):
    sampled.save(tmp_path / "model")
    loaded = SENet.load(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(loaded.labels_, sampled.labels_)
    np.testing.assert_array_equal(loaded.predict(data.X), sampled.predict(data.X))


def chosen(n_samples, *, setting="auto", n_nonzero=100, most=None):
    return streaming.n_clustered(
        setting,
        n_samples,
        n_clusters=10,
        n_references=10_000,
        n_nonzero=n_nonzero,
        most=most,
    )


def test_the_choice_follows_number_and_memory_and_is_logged(monkeypatch, caplog):
    monkeypatch.setattr(streaming, "free_bytes", lambda device: 2**40)
    caplog.set_level(logging.INFO)
    assert chosen(80_000) == 80_000
    assert chosen(80_001) == 10_000
    assert chosen(20_000, most=20_000) == 20_000
    assert chosen(20_001, most=20_000) == 10_000
    assert "graph of 10000 of 80001 rows" in caplog.text
    # 50,000 rows of 100 coefficients of 100 bytes are 500 MB; half must suffice.
    monkeypatch.setattr(streaming, "free_bytes", lambda device: 990_000_000)
    assert chosen(50_000) == 10_000
    monkeypatch.setattr(streaming, "free_bytes", lambda device: 1_010_000_000)
    assert chosen(50_000) == 50_000
    assert chosen(3_000_000, setting=None) == 3_000_000
    assert chosen(3_000_000, setting=20_000) == 20_000
    assert free_bytes(torch.device("cpu")) > 0


@pytest.mark.parametrize("setting", [0, 2, -5, 2.5, "all", True])
def test_an_impossible_sample_is_refused(data, setting):
    with pytest.raises(ConfigError, match="n_cluster_samples"):
        SENet(3, n_cluster_samples=setting, **SETTINGS).fit(data.X)


@pytest.mark.gpu
def test_a_gpu_names_rows_as_the_processor_does(data, sampled, tmp_path):
    sampled.save(tmp_path / "model")
    loaded = SENet.load(tmp_path / "model", device="cuda")
    named = loaded.predict(ArraySource(data.X))
    assert (named == sampled.predict(data.X)).mean() >= 0.99
