"""SENet on separable subspaces: labels, new points, inputs, files."""

from __future__ import annotations

import copy
import json
import pickle
import struct
import tracemalloc

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from selfexpress import SENet, make_subspaces
from selfexpress.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    DegenerateError,
    DegenerateWarning,
    IgnoredSettingWarning,
)
from selfexpress.metrics import adjusted_rand, clustering_accuracy
from selfexpress.rows.opening import open_rows
from selfexpress.rows.sources import ArraySource
from selfexpress.training.callbacks import Callback

# The network alone; test_inductive.py is about coefficients that are solved for.
SETTINGS = {
    "refine": None,
    "gamma": 50.0,
    "hidden_sizes": (64, 64),
    "n_embedding": 64,
    "n_train_samples": 180,
    "max_iter": 200,
    "batch_size": 90,
    "n_neighbors": 8,
    "random_state": 0,
    "device": "cpu",
}


def subspaces(seed=0, n_samples=90):
    return make_subspaces(
        3, dimension=3, n_features=20, n_samples=n_samples, random_state=seed
    )


@pytest.fixture(scope="module")
def data():
    return subspaces()


@pytest.fixture(scope="module")
def is_new(data):
    return np.arange(len(data.X)) % 6 == 5


@pytest.fixture(scope="module")
def model(data, is_new):
    return SENet(3, **SETTINGS).fit(data.X[~is_new])


def test_separable_subspaces_are_found(model, data, is_new):
    assert clustering_accuracy(model.labels_, data.labels[~is_new]) == 1


def test_towers_of_one_layer_learn(data):
    settings = {**SETTINGS, "hidden_sizes": (), "learning_rate": "auto"}
    model = SENet(3, **settings).fit(data.X)
    assert [len(model.network_.query_tower), len(model.network_.key_tower)] == [2, 2]
    assert len(model.labels_) == len(data.X)


def test_predict_agrees_with_the_fitted_labels(model, data, is_new):
    assert adjusted_rand(model.predict(data.X[~is_new]), model.labels_) >= 0.99


def test_new_points_are_named_as_well_as_fitted_ones(model, data, is_new):
    """Label ids agree with the fit's: no clustering again, no renaming."""
    truth = data.labels
    class_of = {
        label: np.bincount(truth[~is_new][model.labels_ == label]).argmax()
        for label in range(3)
    }
    named = [class_of[label] for label in model.predict(data.X[is_new])]
    assert np.mean(named == truth[is_new]) >= 0.98


def test_probabilities_are_shares_that_predict_follows(model, data, is_new):
    shares = model.predict_proba(data.X[is_new])
    assert shares.shape == (is_new.sum(), 3)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert (shares.argmax(axis=1) == model.predict(data.X[is_new])).all()


def test_new_rows_are_expressed_by_rows_of_their_own_subspace(model, data, is_new):
    coefficients = model.self_expression(data.X[is_new])
    assert isinstance(coefficients, sparse.csr_array)
    assert coefficients.shape == (is_new.sum(), (~is_new).sum())
    assert np.diff(coefficients.indptr).max() <= 30
    wrong = data.labels[is_new][:, None] != data.labels[~is_new][None]
    sizes = abs(coefficients.toarray())
    assert sizes[wrong].sum() < 0.25 * sizes.sum()


def test_fitted_attributes_describe_the_fit(model, is_new):
    n_rows = (~is_new).sum()
    assert model.coefficients_.shape == model.affinity_matrix_.shape == (n_rows, n_rows)
    assert not model.coefficients_.diagonal().any()
    assert model.embedding_.shape == (n_rows, 3)
    assert model.n_iter_ == len(model.history_["objective"]) == 200
    stages = {"training", "coefficients", "affinity", "spectral", "references"}
    assert set(model.timings_) == stages


@pytest.mark.parametrize(
    "convert",
    [
        np.asarray,
        np.float32,
        np.asfortranarray,
        torch.from_numpy,
        lambda X: torch.from_numpy(X).float().requires_grad_(),
        pd.DataFrame,
        lambda X: ArraySource(X, dtype=torch.float64),
    ],
    ids=["float64", "float32", "fortran", "torch", "grad", "pandas", "source"],
)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_every_kind_of_input_gives_the_same_labels(convert, model, data, is_new):
    if convert is pd.DataFrame:
        frame = pd.DataFrame(data.X, columns=[f"f{i}" for i in range(20)])
        fitted = SENet(3, **SETTINGS).fit(frame[~is_new])
        named = fitted.predict(frame[is_new])
        assert list(fitted.feature_names_in_) == list(frame.columns)
    else:
        fitted = SENet(3, **SETTINGS).fit(convert(data.X[~is_new]))
        named = fitted.predict(convert(data.X[is_new]))
    assert (fitted.labels_ == model.labels_).all()
    assert (named == model.predict(data.X[is_new])).all()


def test_memory_mapped_input_gives_the_same_labels(model, data, is_new, tmp_path):
    np.save(tmp_path / "rows.npy", data.X[~is_new])
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert (SENet(3, **SETTINGS).fit(mapped).labels_ == model.labels_).all()


def test_sparse_input_is_refused(data, model):
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        SENet(3, **SETTINGS).fit(sparse.csr_array(data.X))
    with pytest.raises(TypeError, match="dense"):
        model.predict(torch.from_numpy(data.X).to_sparse())


@pytest.mark.parametrize("algorithm", ["naive", "two_pass"])
def test_both_algorithms_give_the_same_labels(algorithm, model, data, is_new):
    settings = {**SETTINGS, "algorithm": algorithm, "block_size": 77}
    fitted = SENet(3, **settings).fit(data.X[~is_new])
    assert adjusted_rand(fitted.labels_, model.labels_) == 1


def test_training_on_all_rows_streams_them(data, is_new, model):
    settings = {**SETTINGS, "n_train_samples": None}
    fitted = SENet(3, **settings).fit(data.X[~is_new])
    assert adjusted_rand(fitted.labels_, model.labels_) == 1


def test_one_seed_gives_one_result(model, data, is_new):
    again = clone(model).fit(data.X[~is_new])
    assert (again.labels_ == model.labels_).all()
    assert abs(again.coefficients_ - model.coefficients_).max() == 0


def test_only_the_direction_of_rows_counts(model, data, is_new):
    rng = np.random.default_rng(0)
    scales = 10.0 ** rng.uniform(-200, 200, size=((~is_new).sum(), 1))
    fitted = SENet(3, **SETTINGS).fit(data.X[~is_new] * scales)
    assert adjusted_rand(fitted.labels_, model.labels_) == 1
    for scale in (1e60, 1e-60):
        expected = model.predict(data.X[is_new])
        assert (model.predict(scale * data.X[is_new]) == expected).all()


def test_bfloat16_on_a_cpu_is_float32_with_a_warning(model, data, is_new):
    fitted = SENet(3, **{**SETTINGS, "precision": "bfloat16"})
    with pytest.warns(IgnoredSettingWarning, match="needs a GPU"):
        fitted.fit(data.X[~is_new])
    assert (fitted.labels_ == model.labels_).all()


@pytest.mark.gpu
def test_gpu_and_cpu_agree_and_exchange_models(model, data, is_new, tmp_path):
    X = data.X[~is_new]
    for precision in ("float32", "bfloat16"):
        settings = {**SETTINGS, "device": "cuda", "precision": precision}
        fitted = SENet(3, **settings).fit(torch.from_numpy(X).cuda())
        assert adjusted_rand(fitted.labels_, model.labels_) == 1
        fitted.save(tmp_path / "gpu.selfexpress")
        loaded = SENet.load(tmp_path / "gpu.selfexpress", device="cpu")
        assert adjusted_rand(loaded.predict(X), fitted.predict(X)) >= 0.99
    model.save(tmp_path / "cpu.selfexpress")
    loaded = SENet.load(tmp_path / "cpu.selfexpress", device="cuda")
    assert adjusted_rand(loaded.predict(X), model.predict(X)) >= 0.99


def test_fewer_references_still_name_new_points(data, is_new):
    settings = {**SETTINGS, "n_references": 150}
    fitted = SENet(3, **settings).fit(data.X[~is_new])
    assert fitted.references_.keys.shape == (150, 64)
    assert fitted.self_expression(data.X[:5]).shape == (5, 150)
    accuracy = clustering_accuracy(fitted.predict(data.X[is_new]), data.labels[is_new])
    assert accuracy >= 0.98


@pytest.mark.filterwarnings("ignore::selfexpress.errors.DegenerateWarning")
def test_pipelines_and_grid_search_work(data):
    pipeline = make_pipeline(PCA(15), SENet(3, **{**SETTINGS, "max_iter": 20}))
    assert pipeline.fit_predict(data.X).shape == (270,)
    assert pipeline.predict(data.X[:4]).shape == (4,)

    def score(estimator, X, y=None):
        return -float(estimator.history_["objective"][-1])

    settings = {**SETTINGS, "max_iter": 20}
    search = GridSearchCV(
        SENet(3, **settings), {"gamma": [20.0, 50.0]}, scoring=score, cv=2
    )
    search.fit(data.X)
    assert search.best_params_["gamma"] == 20.0


def test_a_pickled_model_predicts_the_same(model, data, is_new):
    copied = pickle.loads(pickle.dumps(model))
    assert (copied.predict(data.X) == model.predict(data.X)).all()


@pytest.mark.filterwarnings("ignore::selfexpress.errors.DegenerateWarning")
def test_callbacks_hear_every_step(data):
    class Counter(Callback):
        steps = 0

        def on_step_end(self, state):
            self.steps += 1

    counter = Counter()
    settings = {**SETTINGS, "max_iter": 7, "callbacks": [counter]}
    assert SENet(3, **settings).fit(data.X).n_iter_ == counter.steps == 7


def test_a_gamma_too_small_for_any_coefficient_names_the_one_that_works(data):
    products = np.abs(data.X @ data.X.T)
    np.fill_diagonal(products, 0)
    smallest = 0.9 / products.max()
    given = {"gamma": 0.99 * smallest, "l1_ratio": 0.9, "n_train_samples": None}
    settings = {**SETTINGS, **given}
    pattern = rf"gamma must exceed {smallest:.4g} .*got {0.99 * smallest:.4g}"
    with pytest.raises(DegenerateError, match=pattern):
        SENet(3, **settings).fit(data.X)


def test_a_network_that_learned_only_zeros_is_refused(data):
    class KillThreshold(Callback):
        def on_train_end(self, state):
            with torch.no_grad():
                state.network.threshold.fill_(1e6)

    settings = {**SETTINGS, "max_iter": 1, "callbacks": [KillThreshold()]}
    with pytest.raises(DegenerateError, match=r"gamma=50 .* all are.*Raise gamma"):
        SENet(3, **settings).fit(data.X)


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("n_clusters", 0, "n_clusters must be a positive integer, got 0"),
        ("n_clusters", 271, "n_clusters must be at most .*n_samples=270, got 271"),
        ("gamma", -1, "gamma must be a finite number above 0, got -1"),
        ("n_nonzero", 0, "n_nonzero must be a positive integer, got 0"),
        ("n_train_samples", 1, "n_train_samples must be an integer of at least 2"),
        ("device", "gpu", "device must name a torch device, got 'gpu'"),
        ("device", "meta", "device must be a CPU or a CUDA GPU, got 'meta'"),
        ("affinity", "rbf", "affinity must be one of"),
    ],
)
def test_a_bad_setting_is_named_in_one_sentence(setting, value, message, data):
    settings = {"n_clusters": 3, **SETTINGS, setting: value}
    with pytest.raises(ConfigError, match=message):
        SENet(**settings).fit(data.X)


def test_bad_rows_are_refused(data, model):
    broken = torch.from_numpy(data.X.copy())
    broken[3, 4] = float("nan")
    with pytest.raises(ValueError, match="NaN"):
        model.predict(broken.numpy())
    with pytest.raises(ValueError, match="NaN"):
        model.predict(broken)
    with pytest.raises(ValueError, match="features"):
        model.predict(data.X[:, :7])
    with pytest.raises(ValueError, match="features"):
        model.predict(ArraySource(data.X[:, :7]))
    with pytest.raises(ValueError, match="matrix"):
        model.predict(torch.zeros(3, 4, 5))
    with pytest.raises(ValueError, match="finite"):
        model.predict(ArraySource(broken))
    with pytest.raises(ValueError, match="at least 2 rows"):
        SENet(3, **SETTINGS).fit(ArraySource(data.X[:1]))
    with pytest.raises(NotFittedError):
        SENet(3).predict(data.X)


def test_a_fit_that_is_refused_leaves_the_model_as_it_was(data):
    fitted = SENet(3, **{**SETTINGS, "max_iter": 30}).fit(data.X)
    before, settings = fitted.predict(data.X), dict(fitted.settings_)
    spoiled = data.X.copy()
    spoiled[0, 0] = np.nan
    with pytest.raises(DataError):
        fitted.fit(spoiled)
    with pytest.raises(ConfigError):
        fitted.set_params(affinity="rbf", max_iter=10).fit(data.X)
    assert (fitted.predict(data.X) == before).all()
    assert fitted.settings_ == settings


def test_a_fit_that_fails_leaves_no_half_fitted_model(data):
    fitted = SENet(3, **{**SETTINGS, "max_iter": 30}).fit(data.X)
    with pytest.raises(DegenerateError):
        fitted.set_params(gamma=1e-6).fit(data.X)
    with pytest.raises(NotFittedError):
        fitted.predict(data.X)


def test_rows_that_nothing_expresses_are_named_with_a_warning(model, data):
    rows = np.vstack([data.X[:3], np.zeros((2, data.X.shape[1]))])
    with pytest.warns(DegenerateWarning, match="2 of 5 have none and get the common"):
        labels = model.predict(rows)
    commonest = np.bincount(model.references_.labels).argmax()
    assert (labels[3:] == commonest).all()


def test_settings_changed_after_the_fit_do_not_reach_the_fitted_model(
    model, data, tmp_path
):
    changed = pickle.loads(pickle.dumps(model))
    changed.set_params(n_clusters=2, n_embedding=3, hidden_sizes=(7,))
    assert (changed.predict(data.X) == model.predict(data.X)).all()
    changed.save(tmp_path / "m")
    loaded = SENet.load(tmp_path / "m", device="cpu")
    assert (loaded.predict(data.X) == model.predict(data.X)).all()


class TestFiles:
    @pytest.fixture
    def path(self, model, tmp_path):
        model.save(tmp_path / "a.selfexpress")
        return tmp_path / "a.selfexpress"

    def test_a_loaded_model_predicts_identically(self, path, model, data):
        loaded = SENet.load(path, device="cpu")
        assert (loaded.predict_proba(data.X) == model.predict_proba(data.X)).all()
        assert (loaded.labels_ == model.labels_).all()
        assert loaded.n_features_in_ == 20
        # What "auto" became is kept, but for what another device or graph would choose
        # anew; a given number of eigenvectors would be used in another way.
        anew = ("algorithm", "precision", "n_eigenvectors", "n_cluster_samples")
        decided = model.settings_ | dict.fromkeys(anew, "auto")
        skipped = ("device", "random_state")
        for name, value in model.get_params().items():
            if name not in skipped:
                is_auto = isinstance(value, str) and value == "auto"
                expected = decided.get(name, value) if is_auto else value
                assert loaded.get_params()[name] == expected

    @pytest.mark.filterwarnings("ignore::selfexpress.errors.DegenerateWarning")
    def test_a_loaded_model_can_be_saved_and_fitted_again(self, path, data, tmp_path):
        loaded = SENet.load(path, device="cpu")
        loaded.save(tmp_path / "b.selfexpress")
        again = SENet.load(tmp_path / "b.selfexpress", device="cpu")
        assert (again.predict(data.X) == loaded.predict(data.X)).all()
        loaded.set_params(max_iter=5).fit(data.X)

    def test_the_file_is_safetensors_and_json_without_any_row(self, path, data, is_new):
        raw = path.read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        header = json.loads(raw[8 : 8 + length])
        assert json.loads(header["__metadata__"]["selfexpress"])["version"] == 2
        shapes = [entry["shape"] for name, entry in header.items() if name[0] != "_"]
        # No tensor is as wide as the rows but the first layer's weights, 64 x 20.
        assert all(shape == [64, 20] for shape in shapes if shape[-1:] == [20])
        unit = data.X / np.linalg.norm(data.X, axis=1, keepdims=True)
        for row in np.concatenate([data.X, unit]):
            assert row.astype(np.float32).tobytes() not in raw
            assert row.tobytes() not in raw

    def test_names_of_columns_are_kept(self, data, tmp_path):
        frame = pd.DataFrame(data.X, columns=[f"f{i}" for i in range(20)])
        settings = {**SETTINGS, "max_iter": 20, "affinity": "symmetric"}
        SENet(3, **settings).fit(frame).save(tmp_path / "m")
        loaded = SENet.load(tmp_path / "m", device="cpu")
        loaded.predict(frame)
        with pytest.raises(ValueError, match="feature names"):
            loaded.predict(frame[frame.columns[::-1]])

    @pytest.mark.parametrize(
        ("name", "change"),
        [
            ("references.keys", lambda t: t[:, :5].contiguous()),
            ("references.keys", lambda t: t * torch.inf),
            ("references.labels", lambda t: t + 3),
            ("references.labels", lambda t: t[1:].clone()),
            ("labels", lambda t: t.double()),
            ("history.objective", lambda t: t[0].clone()),
            ("history.penalty", lambda t: t[1:].clone()),
            ("network.threshold", lambda t: t * torch.nan),
            ("network.query_tower.0.weight", lambda t: t.T.contiguous()),
        ],
    )
    def test_hostile_tensors_are_refused(self, path, name, change):
        with safe_open(path, framework="pt") as file:
            facts = json.loads(file.metadata()["selfexpress"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        del facts["checksum"]  # which would find the change before the checks do
        metadata = {"selfexpress": json.dumps(facts)}
        tensors[name] = change(tensors[name])
        save_file(tensors, path, metadata=metadata)
        with pytest.raises(CheckpointError, match="damaged or something else"):
            SENet.load(path)

    def test_a_changed_number_is_found(self, path):
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        tensors["network.threshold"] = tensors["network.threshold"] / 2
        save_file(tensors, path, metadata=metadata)
        with pytest.raises(CheckpointError, match="checksum differs"):
            SENet.load(path)

    def test_what_could_not_be_loaded_is_not_saved(self, model, tmp_path):
        changed = copy.deepcopy(model).set_params(n_nonzero=0)
        with pytest.raises(ConfigError, match="n_nonzero must be a positive"):
            changed.save(tmp_path / "m")
        assert not list(tmp_path.iterdir())

    def test_an_unpickler_finds_nothing_to_run(self, path):
        with pytest.raises(pickle.UnpicklingError):
            pickle.loads(path.read_bytes())

    def test_every_truncation_is_refused(self, path):
        raw = path.read_bytes()
        for size in [0, 1, 7, 8, 100, len(raw) // 2, len(raw) - 1]:
            path.write_bytes(raw[:size])
            with pytest.raises(CheckpointError, match="damaged"):
                SENet.load(path)

    def test_a_missing_file_or_folder_is_named(self, model, tmp_path):
        with pytest.raises(CheckpointError, match="there is none"):
            SENet.load(tmp_path / "nothing")
        with pytest.raises(ValueError, match=r"folder .* must exist"):
            model.save(tmp_path / "no" / "folder")

    @pytest.mark.parametrize(
        "change",
        [
            lambda header: header.update(version=99),
            lambda header: header.update(n_features=10**15),
            lambda header: header.update(n_features="20"),
            lambda header: header.pop("settings"),
            lambda header: header["settings"].pop("gamma"),
            lambda header: header.pop("parameters"),
            lambda header: header["parameters"].update(refine="x"),
            lambda header: header["parameters"].update(center="x"),
            lambda header: header["network"].update(n_embedding=7),
            lambda header: header.update(estimator="EnSC"),
            lambda header: header["parameters"].update(n_clusters=2),
            lambda header: header["network"].update(hidden_sizes=[10**9, 64]),
            lambda header: header["parameters"].update(hidden_sizes=7),
            lambda header: header["parameters"].update(gamma="much"),
            lambda header: header["parameters"].update(surprise=1),
            lambda header: header["parameters"].update(gamma=10**400),
            lambda header: header["parameters"].update(n_clusters=10**12),
            lambda header: header["network"].update(hidden_sizes=[1] * 20_000),
            lambda header: header["parameters"].update(n_train_samples="abc"),
            lambda header: header.update(version=True),
            lambda header: header.update(feature_names=["a"]),
            lambda header: header.update(format="other"),
        ],
    )
    def test_a_header_with_surprises_is_refused(self, path, change):
        raw = path.read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        header = json.loads(raw[8 : 8 + length])
        inner = json.loads(header["__metadata__"]["selfexpress"])
        change(inner)
        del inner["checksum"]  # which would find the change before the checks do
        header["__metadata__"]["selfexpress"] = json.dumps(inner)
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])
        with pytest.raises(CheckpointError):
            SENet.load(path)


def test_numbers_of_numpy_are_settings_like_any_other(model, data, is_new, tmp_path):
    settings = SETTINGS | {
        "gamma": np.float64(50), "hidden_sizes": np.array([64, 64]),
        "n_embedding": np.int64(64), "max_iter": np.int64(200),
        "batch_size": np.int64(90), "n_nonzero": np.int64(30),
        "block_size": np.int64(50), "algorithm": "two_pass",
        "checkpoint": tmp_path / "kept",
    }  # fmt: skip
    fitted = SENet(np.int64(3), **settings).fit(data.X[~is_new])
    assert (fitted.labels_ == model.labels_).all()


def test_columns_of_a_source_must_be_those_of_the_fit(data, is_new, tmp_path):
    names = [f"f{number}" for number in range(data.X.shape[1])]
    frame = pd.DataFrame(data.X, columns=names)
    frame[~is_new].to_parquet(tmp_path / "fit.parquet")
    frame[is_new][names[::-1]].to_parquet(tmp_path / "turned.parquet")
    frame[is_new].to_csv(tmp_path / "new.csv", index=False)
    fitted = SENet(3, **SETTINGS).fit(open_rows(tmp_path / "fit.parquet"))
    fitted.save(tmp_path / "model")
    for each in (fitted, SENet.load(tmp_path / "model")):
        assert each.feature_names_in_.tolist() == names
        named = each.predict(open_rows(tmp_path / "new.csv"))
        assert (named == fitted.predict(frame[is_new])).all()
        with pytest.raises(DataError, match="feature names should match"):
            each.predict(open_rows(tmp_path / "turned.parquet"))


def test_a_fit_that_is_refused_keeps_the_columns(model, data, is_new):
    fitted = copy.deepcopy(model)
    with pytest.raises(ConfigError, match="n_clusters must be at most"):
        fitted.fit(data.X[:2, :7])
    assert (fitted.predict(data.X[is_new]) == model.predict(data.X[is_new])).all()


@pytest.mark.parametrize("dtype", [">f4", "<f8", ">i2", np.longdouble])
def test_mapped_numbers_of_any_kind_are_those_in_memory(model, data, dtype, tmp_path):
    rows = (100 * data.X).astype(dtype)
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert (model.predict(mapped) == model.predict(rows)).all()


def test_a_mapped_file_is_not_read_whole(model, data, is_new, tmp_path):
    rows = np.tile(data.X[is_new], (4000, 1)).astype(np.float16)
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    tracemalloc.start()
    next(model.predict_blocks(mapped))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < rows.nbytes
    broken = np.load(tmp_path / "rows.npy", mmap_mode="r+")
    broken[7, 3] = np.inf
    with pytest.raises(DataError, match="row 7, counted from 0"):
        model.predict(broken)


def test_a_relative_gamma_needs_an_l1_norm(data):
    settings = SETTINGS | {"gamma_scale": "relative", "l1_ratio": 0.0}
    with pytest.raises(ConfigError, match="gamma_scale must be 'absolute'"):
        SENet(3, **settings).fit(data.X)
