from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import dataset_files
import numpy as np
import pytest
import torch
from problems import uneven_groups
from toy_images import PRESET, SMALL, toy_context

from reproduction import inputs
from reproduction.algorithms import AlgorithmCell
from reproduction.evaluation import merged_scores
from reproduction.images import ImageCell, TimingCell, senet_cell
from reproduction.inputs import image_rows, scattering_features
from reproduction.methods import METHODS, MethodCell, make_method, method_settings
from reproduction.presets import CIFAR10, EMNIST, IMAGES, MNIST
from reproduction.record import plain
from reproduction.runner import Context, Outcome, Results, run_cell
from selfexpress.datasets import loading as datasets
from selfexpress.datasets import registry
from selfexpress.features.scattering import Scattering2D
from selfexpress.metrics import clustering_accuracy, subspace_preserving_error


@pytest.fixture
def context(tmp_path, seed) -> Context:
    return toy_context(tmp_path, seed)


def test_one_network_is_scored_on_training_test_and_all_rows(context, seed):
    cell = ImageCell(
        preset=PRESET, n_train=60, look_at=(60, 200), look_at_all=(60,), seed=seed
    )
    outcome = cell.run(context)
    found = outcome.metrics
    for part in ("train", "test", "full", "predict", "merged"):
        assert found[part]["accuracy"] >= 0.9
    # The last look sees the network that the result has.
    for part in ("train", "full"):
        curve = found[f"curve_{part}"]
        assert [look["step"] for look in curve] == [60, 200]
        assert curve[1]["sre"] == pytest.approx(found[part]["sre"], rel=1e-4)
        assert curve[1]["sre"] < curve[0]["sre"]
    assert len(found["history"]["step"]) == 200
    assert found["estimator"]["max_iter"] == 200
    for stage in ("training", "inference", "affinity", "spectral", "predict"):
        assert outcome.seconds[stage] > 0


def test_without_the_threshold_no_coefficient_is_cut_off(context, seed):
    cell = ImageCell(preset=PRESET, n_train=60, learn_threshold=False, seed=seed)
    thresholds = cell.run(context).metrics["history"]["threshold"]
    # The history holds what a step made of it; training always starts from 0 again.
    assert max(map(abs, thresholds)) <= 2 * SMALL.learning_rate


@pytest.mark.parametrize("method", [name for name in METHODS if name != "senet"])
def test_other_methods_run_on_the_same_rows(method, context, seed):
    # Warnings about disconnected graphs, which pure subspaces give, are recorded.
    record = run_cell(MethodCell(preset=PRESET, method=method, seed=seed), context)
    rows = context.memory["rows"]
    model = make_method(method, 3, seed=seed, **method_settings(method, PRESET))
    # A pursuit takes features as they come, as in the example behind the paper's row.
    X = rows.unscaled() if method == "ssc-omp" else rows.X
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels = model.fit_predict(X)
    assert record["metrics"]["accuracy"] == clustering_accuracy(labels, rows.labels)
    if method == "ssc-omp":
        sre = subspace_preserving_error(model.coefficients_, rows.labels)
        assert record["metrics"]["sre"] == sre
    assert record["seconds"]["total"] > 0
    has_graph = method not in ("k-means", "spectral")
    for name in ("wrong_edges", "graph_sre", "merged"):
        assert (name in record["metrics"]) == has_graph


def test_merged_pieces_are_what_senet_s_own_spectral_step_finds(seed):
    affinity, groups = uneven_groups(seed)
    cell = ImageCell(
        preset=replace(PRESET, n_clusters=4, recipe=replace(SMALL, n_init=5)),
        n_train=1,
        seed=seed,
    )
    truth = np.array([0, 1, 2, 3, 3])[groups]
    context = Context(torch.device("cpu"), Path())
    found = merged_scores(cell, affinity, truth, context)
    # As many eigenvectors as clusters would split the last group.
    assert set(found.values()) == {1.0}


def test_methods_have_the_settings_behind_the_paper_s_rows():
    """As `docs/baselines.md` lists them."""
    assert method_settings("k-means", MNIST) == {}
    assert method_settings("spectral", MNIST) == {"n_neighbors": 5}
    pursued = {
        name: method_settings("ssc-omp", preset)["n_nonzero"]
        for name, preset in IMAGES.items()
    }
    assert pursued.pop("mnist") == 5
    assert set(pursued.values()) == {10}
    assert method_settings("ssc-omp", MNIST)["normalize"] is False
    exact = method_settings("ensc", MNIST)
    assert (exact["gamma"], exact["l1_ratio"]) == (200.0, 0.9)
    assert (exact["n_neighbors"], exact["n_eigenvectors"]) == (3, 15)
    assert method_settings("esc", EMNIST)["n_exemplars"] == 300


def test_ensc_has_the_gamma_that_its_cell_says(context, seed):
    for scale in ("absolute", "relative"):
        cell = MethodCell(preset=PRESET, method="ensc", gamma_scale=scale, seed=seed)
        record = run_cell(cell, context)
        assert record["metrics"]["estimator"]["gamma_scale"] == scale


def test_a_record_of_other_settings_of_a_method_is_none_of_its_cell(
    context, seed, tmp_path
):
    cell = MethodCell(preset=PRESET, method="ssc-omp", seed=seed)
    record = run_cell(cell, context)
    assert cell.fits(record)
    older = json.loads(json.dumps(record, default=plain))
    del older["metrics"]["estimator"]["normalize"]  # which was not there to be chosen
    results = Results(tmp_path)
    results.add(cell, older)
    assert not results.has(cell)
    results.add(cell, record)
    assert results.has(cell)
    assert len(results.metric_of_runs(cell, "accuracy")[seed]) == 1


@pytest.mark.parametrize("dataset", IMAGES)
@pytest.mark.parametrize("method", [name for name in METHODS if name != "senet"])
def test_settings_of_every_method_are_known_to_it(method, dataset):
    settings = method_settings(method, IMAGES[dataset])
    model = make_method(method, 10, seed=0, **settings)
    assert model.get_params().items() >= settings.items()


def test_both_algorithms_reach_the_same_accuracy_and_are_measured(context, seed):
    def run(algorithm: str) -> Outcome:
        recipe = replace(SMALL, algorithm=algorithm, block_size=25)
        preset = replace(PRESET, recipe=recipe)
        return AlgorithmCell(preset=preset, n_train=60, seed=seed).run(context)

    outcome = run("naive")
    naive, two_pass = outcome.metrics, run("two_pass").metrics
    assert outcome.seconds["step"] > 0
    assert two_pass["peak_bytes"] >= 0
    assert naive["objective"] == pytest.approx(two_pass["objective"], rel=0.02)
    assert naive["test"]["accuracy"] == pytest.approx(
        two_pass["test"]["accuracy"], abs=0.07
    )


def test_seconds_of_some_steps_tell_those_of_all(context, seed):
    recipe = replace(SMALL, max_iter=1000)
    cell = TimingCell(
        preset=replace(PRESET, recipe=recipe), n_train=60, n_steps=100, seed=seed
    )
    seconds = cell.run(context).seconds
    assert seconds["training"] == pytest.approx(1000 * seconds["step"])
    assert seconds.keys() >= {"inference", "affinity", "spectral"}
    assert cell.is_timed


def test_learning_curves_are_part_of_the_cell_of_2000_images():
    assert senet_cell("cifar10", 2000, False).look_at[-1] == CIFAR10.recipe.max_iter
    assert senet_cell("cifar10", 2000, False).look_at_all == (5000, 20_000)
    assert senet_cell("mnist", 2000, False).look_at_all == ()
    assert senet_cell("mnist", 5000, False).look_at == ()


def test_emnist_is_read_and_made_features_of(tmp_path, seed, monkeypatch):
    written = dataset_files.write_emnist(tmp_path, seed)
    specs = {**registry.SPECS, "emnist-lower": written.spec}
    monkeypatch.setattr(datasets, "SPECS", specs)
    monkeypatch.setenv("SELFEXPRESS_DATA", str(tmp_path))
    preset = replace(EMNIST, n_components=20)
    context = Context(torch.device("cpu"), tmp_path / "cache")
    rows = image_rows(preset, context)
    truth = np.concatenate([written.labels["train"], written.labels["test"]])
    assert (rows.labels == truth).all()
    assert rows.X.shape == (len(truth), 20)
    assert rows.n_first == len(truth)
    np.testing.assert_allclose(np.linalg.norm(rows.X, axis=1), 1, rtol=1e-5)
    # The mean is removed before rows are scaled.
    np.testing.assert_allclose(rows.unscaled().mean(axis=0), 0, atol=1e-5)

    def gone(*arguments, **keywords):
        raise AssertionError("features that are in the cache need no images")

    monkeypatch.setattr(inputs, "load_dataset", gone)
    again = image_rows(preset, Context(torch.device("cpu"), tmp_path / "cache"))
    assert (again.X == rows.X).all()
    assert (again.lengths == rows.lengths).all()
    assert again.n_first == rows.n_first


def test_features_are_scattering_projected_without_centring(seed):
    images = np.random.default_rng(seed).integers(0, 256, (30, 28, 28), dtype=np.uint8)
    preset = replace(MNIST, n_components=12)
    found = scattering_features(images, preset, device=torch.device("cpu"))
    maps = Scattering2D(J=3, L=8, resize=32).fit_transform(images).astype(np.float64)
    _, _, axes = np.linalg.svd(maps, full_matrices=False)
    expected = maps @ axes[:12].T
    # Axes have no sign of their own; inner products of rows do not depend on it.
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, rtol=1e-4)


def test_a_quick_part_keeps_training_images_first(data_folder, tmp_path):
    preset = replace(MNIST, n_images=40, n_components=10)
    rows = image_rows(preset, Context(torch.device("cpu"), tmp_path))
    index, n_first = inputs._part(70_000, preset)
    assert rows.n_first == n_first == (index < 60_000).sum()
    assert (rows.labels == datasets.load_dataset("mnist").labels[index]).all()


def test_labels_beside_the_encoder_features_are_those_of_the_images(data_folder):
    rows = image_rows(CIFAR10, Context(torch.device("cpu"), data_folder))
    truth = np.load(data_folder / "cifar10" / "labels.npy")
    assert (rows.labels == truth).all()
    assert rows.X.shape == (60_000, 128)
    np.testing.assert_allclose(np.linalg.norm(rows.X, axis=1), 1, rtol=1e-5)


def test_rows_of_one_preset_do_not_serve_another(context, monkeypatch):
    made = []

    def make(preset, _):
        made.append(preset)
        return context.memory["rows"]

    monkeypatch.setitem(inputs._FEATURES, PRESET.features, make)
    for preset in (
        PRESET,
        replace(PRESET, recipe=replace(PRESET.recipe, gamma=1.0)),
        replace(PRESET, n_components=7),
        replace(PRESET, center_after=True),
    ):
        inputs.image_rows(preset, context)
    # What a network does with them does not count.
    assert [each.n_components for each in made] == [7, PRESET.n_components]
