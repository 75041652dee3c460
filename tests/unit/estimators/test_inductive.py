"""What SENet and EnSC share: coefficients solved for, graph, new rows, files."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from compare import assert_same_partition
from safetensors import safe_open
from sklearn.base import clone
from sklearn.datasets import make_blobs

from selfexpress import EnSC, SENet, make_subspaces, objective_gap, open_rows
from selfexpress.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    DegenerateError,
    IgnoredSettingWarning,
)
from selfexpress.metrics import adjusted_rand, clustering_accuracy
from selfexpress.ops.self_expression import unit_rows
from selfexpress.rows.sources import ArraySource
from selfexpress.solvers.certificate import certify

METHODS = pytest.mark.parametrize("method", [SENet, EnSC])
TRAINED = {"hidden_sizes": (32,), "n_embedding": 32, "max_iter": 50}


@pytest.fixture(scope="module")
def data():
    return make_subspaces(4, dimension=3, n_features=15, n_samples=150, random_state=0)


@pytest.fixture(scope="module")
def is_new(data):
    return np.arange(len(data.X)) % 5 == 4


@pytest.fixture(scope="module", params=[SENet, EnSC])
def model(request, data, is_new):
    return request.param(4, random_state=0).fit(data.X[~is_new])


def spectra(seed):
    """Rows of four kinds near one direction, as light of four materials is."""
    rng = np.random.default_rng(seed)
    light = 2 + np.abs(rng.normal(size=30)).cumsum()
    kinds = light * (1 + 0.05 * rng.normal(size=(4, 30)))
    labels = rng.integers(4, size=300)
    return kinds[labels] + 0.05 * rng.normal(size=(300, 30)), labels


def test_subspaces_are_found_without_a_network(model, data, is_new):
    assert_same_partition(model.labels_, data.labels[~is_new])
    assert model.network_ is None
    assert set(model.timings_) == {"coefficients", "graph", "references"}
    if isinstance(model, SENet):
        assert {len(values) for values in model.history_.values()} == {0}


@METHODS
def test_hard_unions_of_subspaces_are_found(method, seed):
    """Subspaces that fill the space, and that neighbours say little of."""
    data = make_subspaces(
        10, dimension=10, n_features=20, n_samples=60, random_state=seed
    )
    model = method(10, random_state=0).fit(data.X)
    assert clustering_accuracy(model.labels_, data.labels) >= 0.9
    assert not model.settings_["similar_rows"]


def test_coefficients_carry_their_certificate(model, data, is_new):
    settings = model.settings_
    rows = unit_rows(torch.from_numpy(data.X[~is_new]).float())
    proof = certify(rows, model.coefficients_, gamma=settings["gamma"], l1_ratio=0.9)
    assert settings["certificate"]["violation"] == pytest.approx(
        float(proof.violation.max()), rel=0.1
    )
    # A thousand times this is the scale of the gradient: gamma.
    assert settings["certificate"]["violation"] <= 0.01
    # All rows are candidates of so few.
    assert settings["certificate"]["excess"] == 0


def test_both_estimators_agree(data):
    first, second = (m(4, random_state=0).fit(data.X) for m in (SENet, EnSC))
    assert_same_partition(first.labels_, second.labels_)
    assert first.settings_["gamma"] == second.settings_["gamma"]
    rows = unit_rows(torch.from_numpy(data.X).float())
    settings = {"gamma": first.settings_["gamma"], "l1_ratio": 0.9}
    reached, least = (
        float(certify(rows, model.coefficients_, **settings).objective.mean())
        for model in (first, second)
    )
    # SENet stops ten times earlier.
    assert reached == pytest.approx(least, rel=1e-4)


def test_new_rows_go_to_the_cluster_of_their_subspace(model, data, is_new):
    assert (model.predict(data.X[~is_new]) == model.labels_).mean() >= 0.99
    truth = data.labels
    assigned = model.predict(data.X[is_new])
    class_of = [
        np.bincount(truth[~is_new][model.labels_ == label]).argmax()
        for label in range(4)
    ]
    assert np.mean(np.take(class_of, assigned) == truth[is_new]) >= 0.99
    shares = model.predict_proba(data.X[is_new])
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert (shares.argmax(axis=1) == assigned).all()
    blocks = np.concatenate(list(model.predict_blocks(data.X[is_new])))
    assert (blocks == assigned).all()
    coefficients = model.self_expression(data.X[is_new]).toarray()
    assert coefficients.shape == (is_new.sum(), (~is_new).sum())
    wrong = truth[is_new][:, None] != truth[~is_new]
    assert np.abs(coefficients[wrong]).sum() < 0.05 * np.abs(coefficients).sum()


@METHODS
def test_order_length_and_sign_of_rows_change_nothing(method, data, seed):
    rng = np.random.default_rng(seed)
    expected = method(4, random_state=0).fit(data.X).labels_
    order = rng.permutation(len(data.X))
    scales = rng.choice([-1, 1], len(data.X)) * 10.0 ** rng.uniform(-9, 9, len(data.X))
    found = method(4, random_state=0).fit((data.X * scales[:, None])[order])
    assert found.center_ is None
    assert_same_partition(found.labels_, expected[order])
    assert (found.predict(-data.X) == found.predict(7 * data.X)).all()


@METHODS
def test_similar_rows_join_the_graph_where_clusters_are_blobs(method, seed):
    X, truth = make_blobs(
        400, centers=5, n_features=20, cluster_std=2.0, random_state=seed
    )
    model = method(5, random_state=0).fit(X)
    assert model.settings_["similar_rows"]
    assert adjusted_rand(model.labels_, truth) >= 0.95
    # An affinity that was asked for stays as it is.
    asked = method(5, affinity="combined", random_state=0).fit(X)
    assert "similar_rows" not in asked.settings_


@METHODS
def test_rows_near_one_direction_are_centred(method, data, seed, tmp_path):
    X, truth = spectra(seed)
    model = method(4, random_state=0).fit(X[:200])
    np.testing.assert_allclose(model.center_, X[:200].mean(axis=0))
    assert adjusted_rand(model.predict(X[200:]), truth[200:]) >= 0.95
    model.save(tmp_path / "m")
    loaded = method.load(tmp_path / "m", device="cpu")
    assert (loaded.center_ == model.center_).all()
    assert (loaded.predict_proba(X) == model.predict_proba(X)).all()
    assert method(4, center=False, random_state=0).fit(X).center_ is None
    assert method(4, center=True, random_state=0).fit(data.X).center_ is not None


@METHODS
def test_rows_of_one_direction_alone_are_not_centred(method):
    model = method(2, random_state=0).fit(np.outer(np.arange(1, 21), np.ones(5)))
    assert model.center_ is None


@METHODS
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_type_of_rows_gives_the_same_labels(method, dtype, data):
    model = method(4, random_state=0).fit(data.X.astype(dtype))
    assert_same_partition(model.labels_, data.labels)
    assert model.references_.rows.dtype == torch.float32


@METHODS
def test_a_graph_of_a_sample_gives_the_labels_of_all_rows(method, data, tmp_path):
    model = method(4, n_cluster_samples=200, random_state=0).fit(data.X)
    assert_same_partition(model.labels_, data.labels)
    index = model.sample_indices_
    assert model.coefficients_.shape == (200, 200)
    assert len(np.unique(index)) == len(model.references_) == 200
    assert (model.references_.labels == model.labels_[index]).all()
    assert model.timings_.keys() >= {"prediction"}
    others = np.setdiff1d(np.arange(600), index)
    assert (model.predict(data.X[others]) == model.labels_[others]).all()
    # Of rows on disk the same.
    np.save(tmp_path / "rows.npy", data.X)
    for source in (open_rows(tmp_path / "rows.npy"), ArraySource(data.X)):
        again = clone(model).fit(source)
        assert (again.labels_ == model.labels_).all()
        assert (again.predict(source) == model.predict(data.X)).all()


def test_candidates_of_a_network_join_those_of_similar_rows(data, tmp_path):
    # More numbers than 2^18, so that not all rows are candidates.
    X = np.hstack([data.X, np.zeros((600, 500))])
    alone = SENet(4, random_state=0).fit(X)
    model = SENet(4, random_state=0, **TRAINED).fit(X)
    assert model.n_iter_ == len(model.history_["objective"]) == 50
    assert model.references_.keys.shape == (600, 32)
    assert model.settings_["training_gamma"] > 0
    assert model.settings_["gamma"] == pytest.approx(alone.settings_["gamma"])
    excess = [m.settings_["certificate"]["excess"] for m in (model, alone)]
    assert excess[0] <= excess[1]
    assert_same_partition(model.labels_, data.labels)
    assert objective_gap(model, X, n_rows=50, random_state=0) > 0


@pytest.mark.filterwarnings("ignore::selfexpress.errors.DegenerateWarning")
def test_training_is_what_it_is_without_exact_coefficients(data):
    settings = {"gamma": 200.0, "n_train_samples": 200, "random_state": 0, **TRAINED}
    exact, learned = (
        SENet(4, refine=refine, **settings).fit(data.X) for refine in ("auto", None)
    )
    for name, values in learned.history_.items():
        np.testing.assert_array_equal(exact.history_[name], values)
    assert learned.references_.rows is None
    assert "certificate" not in learned.settings_


MODELS = [
    SENet(4),
    SENet(4, **TRAINED),
    SENet(4, n_cluster_samples=150, gamma=3.0, gamma_scale="relative"),
    EnSC(4),
    EnSC(4, precision="float64"),
    EnSC(4, gamma=20.0, gamma_scale="relative", n_cluster_samples=150),
    EnSC(4, l1_ratio=1.0, n_candidates=40),
    EnSC(4, l1_ratio=0.0, n_nonzero=20),
]


@pytest.mark.parametrize("given", MODELS, ids=str)
@pytest.mark.filterwarnings("ignore:The affinity graph")
def test_a_loaded_model_predicts_identically(given, data, is_new, tmp_path):
    model = clone(given).set_params(random_state=0).fit(data.X[~is_new])
    model.save(tmp_path / "m")
    loaded = type(model).load(tmp_path / "m", device="cpu")
    assert (loaded.predict_proba(data.X) == model.predict_proba(data.X)).all()
    difference = loaded.self_expression(data.X) - model.self_expression(data.X)
    assert difference.nnz == 0
    assert (loaded.labels_ == model.labels_).all()
    assert loaded.n_iter_ == model.n_iter_ >= 1
    assert loaded.settings_ == json.loads(json.dumps(model.settings_))
    loaded.save(tmp_path / "again")
    again = type(model).load(tmp_path / "again", device="cpu")
    assert (again.predict(data.X) == model.predict(data.X)).all()
    again.set_params(random_state=0).fit(data.X)


def test_a_model_is_saved_without_its_rows_if_a_network_is_left(data, tmp_path):
    model = SENet(4, random_state=0, **TRAINED).set_params(max_iter=300).fit(data.X)
    model.save(tmp_path / "m", rows=False)
    with safe_open(tmp_path / "m", framework="pt") as file:
        assert "references.rows" not in file.keys()  # noqa: SIM118
    loaded = SENet.load(tmp_path / "m", device="cpu")
    assert loaded.references_.rows is None
    assert adjusted_rand(loaded.predict(data.X), model.labels_) >= 0.9


def test_a_model_without_a_network_is_not_saved_without_rows(model, tmp_path):
    with pytest.raises(ConfigError, match="rows must be True for a model without a"):
        model.save(tmp_path / "m", rows=False)
    assert not list(tmp_path.iterdir())


def test_a_model_of_another_class_is_refused(model, tmp_path):
    model.save(tmp_path / "m")
    other = EnSC if isinstance(model, SENet) else SENet
    with pytest.raises(CheckpointError, match=f"it is of '{type(model).__name__}'"):
        other.load(tmp_path / "m")


REFUSED = {
    "n_clusters": 0, "n_cluster_samples": 0, "n_references": 0, "random_state": "x",
    "center": "x", "gamma": "x", "affinity": "x", "n_init": 0, "l1_ratio": 2,
}  # fmt: skip
OF_SENET = {
    "n_train_samples": 0, "callbacks": [3], "checkpoint": 5, "refine": "x",
    "max_iter": 0, "hidden_sizes": (0,), "start": "x", "gamma_scale": 0,
}  # fmt: skip
OF_ENSC = {
    "n_candidates": 0, "tol": 0, "precision": "x", "max_iter": 0, "batch_size": 0,
    "gamma_scale": "x",
}  # fmt: skip


@pytest.mark.parametrize(
    ("method", "name", "value"),
    [(SENet, name, value) for name, value in (REFUSED | OF_SENET).items()]
    + [(EnSC, name, value) for name, value in (REFUSED | OF_ENSC).items()],
)
def test_a_refused_setting_leaves_the_earlier_fit(method, name, value, data):
    model = method(4, random_state=0).fit(data.X[:200])
    before = dict(vars(model))
    with pytest.raises(ConfigError, match=f"{name} must"):
        model.set_params(**{name: value}).fit(data.X[:, :9])
    assert vars(model) == before | {name: value}
    assert len(model.predict(data.X)) == 600


@pytest.mark.gpu
@METHODS
def test_gpu_and_cpu_agree_and_exchange_models(method, data, tmp_path):
    on_cpu, on_gpu = (
        method(4, device=device, random_state=0).fit(data.X)
        for device in ("cpu", "cuda")
    )
    assert_same_partition(on_gpu.labels_, on_cpu.labels_)
    for model, device in ((on_gpu, "cpu"), (on_cpu, "cuda")):
        model.save(tmp_path / "m")
        loaded = method.load(tmp_path / "m", device=device)
        agree = loaded.predict(data.X) == model.predict(data.X)
        assert agree.mean() >= 0.99


@METHODS
def test_rows_without_any_likeness_are_refused(method):
    with pytest.raises(DegenerateError, match="orthogonal"):
        method(3).fit(np.eye(12))
    with pytest.raises(DataError, match="NaN"):
        method(3).fit(np.full((9, 3), np.nan))


@pytest.mark.parametrize(
    ("name", "value"),
    [("hidden_sizes", (32,)), ("n_train_samples", None), ("batch_size", 64)],
)
def test_settings_of_a_training_without_one_are_warned_of(name, value, data):
    model = SENet(4, random_state=0, **{name: value})
    with pytest.warns(IgnoredSettingWarning, match=f"{name} should go with a number"):
        model.fit(data.X)
    assert model.network_ is None


def test_the_gap_of_a_model_without_a_network_is_refused(model, data):
    with pytest.raises(ConfigError, match="model must have a network") as refusal:
        objective_gap(model, data.X)
    assert len(str(refusal.value).splitlines()) == 1


def test_progress_is_shown_on_stderr_if_asked_for(data, capsys):
    SENet(4, verbose=True, random_state=0).fit(data.X)
    captured = capsys.readouterr()
    assert "coefficients" in captured.err
    assert captured.out == ""
