"""A start that fails is followed by one that does not; a training may end itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError

from selfexpress import EnSC, SENet, make_subspaces
from selfexpress.errors import (
    CheckpointError,
    ConfigError,
    DegenerateError,
    DegenerateWarning,
)
from selfexpress.estimators.gap import objective_gap
from selfexpress.training import loop
from selfexpress.training.callbacks import Callback


@pytest.fixture
def rows(seed):
    data = make_subspaces(
        12, dimension=4, n_features=60, n_samples=15, random_state=seed
    )
    return data.X


@pytest.fixture
def hopeless(monkeypatch):
    """A start from like rows whose threshold nothing passes."""

    def start(network, source):
        torch.nn.init.constant_(network.threshold, 1e6)

    monkeypatch.setattr(loop, "start_alike", start)


def senet(seed, **settings):
    return SENet(
        12,
        refine=None,
        hidden_sizes=(64,),
        n_embedding=64,
        max_iter=100,
        device="cpu",
        random_state=seed,
        **settings,
    )


def test_few_wide_rows_start_alike_and_the_model_says_so(rows, seed):
    assert senet(seed).fit(rows).settings_["start"] == "alike"
    assert senet(seed, start="random").fit(rows).settings_["start"] == "random"


def test_training_without_a_result_is_repeated_at_random(
    rows, seed, hopeless, tmp_path
):
    for checkpoint in (None, tmp_path):
        with pytest.warns(DegenerateWarning, match="repeated from a random start"):
            model = senet(seed, checkpoint=checkpoint).fit(rows)
        assert model.settings_["start"] == "random"
        expected = senet(seed, start="random").fit(rows)
        assert model.settings_ == expected.settings_
        assert (model.labels_ == expected.labels_).all()


def test_a_start_that_was_asked_for_is_not_replaced(rows, seed, hopeless):
    with pytest.raises(DegenerateError, match="start='random'"):
        senet(seed, start="alike").fit(rows)


def test_a_checkpoint_of_another_start_is_refused(rows, seed, tmp_path):
    senet(seed, start="alike", checkpoint=tmp_path).fit(rows)
    gamma = senet(seed, start="alike").fit(rows).settings_["gamma"]
    with pytest.raises(CheckpointError, match="'alike' there, 'random' here"):
        senet(seed, start="random", gamma=gamma, checkpoint=tmp_path).fit(rows)


def test_an_unknown_start_is_refused(rows, seed):
    with pytest.raises(ValueError, match="start must be one of 'auto', 'alike'"):
        senet(seed, start="warm").fit(rows)


def test_a_relative_gamma_becomes_an_absolute_one(rows, seed, tmp_path):
    model = senet(seed, gamma=20.0, gamma_scale="relative").fit(rows)
    typical = model.smallest_gamma_.typical
    assert model.settings_["gamma"] == pytest.approx(20.0 * typical)
    model.save(tmp_path / "m")
    loaded = SENet.load(tmp_path / "m")
    assert loaded.gamma == model.settings_["gamma"]
    assert loaded.gamma_scale == "absolute"


@pytest.fixture
def ended(seed):
    """A model whose training ended by itself."""
    data = make_subspaces(
        3, dimension=2, n_features=10, n_samples=40, random_state=seed
    )
    return adaptive(seed, n_clusters=3).fit(data.X), data


def adaptive(seed, **settings):
    shared = {"max_iter": 2000, "schedule": "adaptive", "learning_rate": 3e-3}
    return senet(seed).set_params(**shared, **settings)


def test_a_training_that_ends_itself_says_when_and_is_saved(ended, tmp_path):
    model, data = ended
    settled_at = model.settings_["fall_start"]
    assert 300 <= settled_at < 1500
    assert model.n_iter_ == -(-settled_at * 4 // 3)
    rates = model.history_["learning_rate"]
    assert (rates[: settled_at + 1] == rates[0]).all()
    assert rates[-1] < 1e-3 * rates[0]
    assert model.settings_["max_iter"] == 2000

    model.save(tmp_path / "m")
    loaded = SENet.load(tmp_path / "m", device="cpu")
    assert loaded.schedule == "adaptive"
    assert loaded.max_iter == 2000
    assert loaded.n_iter_ == model.n_iter_
    assert (loaded.history_["learning_rate"] == rates).all()
    assert (loaded.predict(data.X) == model.predict(data.X)).all()


@pytest.mark.filterwarnings("ignore::selfexpress.errors.DegenerateWarning")
def test_a_training_that_a_callback_ends_has_not_begun_to_fall(rows, seed):
    class StopAt(Callback):
        def on_step_end(self, state):
            state.should_stop = state.step == 40

    model = adaptive(seed, callbacks=[StopAt()]).fit(rows)
    assert model.n_iter_ == model.settings_["fall_start"] == 40


@pytest.mark.filterwarnings("ignore::selfexpress.errors.DegenerateWarning")
def test_a_fit_ends_by_itself_unless_told_otherwise(rows, seed):
    class StopSoon(Callback):
        def on_step_end(self, state):
            state.should_stop = state.step == 20

    assert SENet().schedule == "adaptive"
    for schedule in ("cosine", "constant", "adaptive"):
        model = senet(seed, schedule=schedule, callbacks=[StopSoon()])
        model.set_params(max_iter="auto").fit(rows)
        assert model.settings_["max_iter"] == 1000
        assert ("fall_start" in model.settings_) == (schedule == "adaptive")


def test_a_repeated_training_ends_by_its_own_rule(rows, seed, hopeless):
    settings = {"max_iter": 400, "callbacks": None}
    with pytest.warns(DegenerateWarning, match="repeated from a random start"):
        model = adaptive(seed).set_params(**settings).fit(rows)
    expected = adaptive(seed, start="random").set_params(**settings).fit(rows)
    assert model.settings_ == expected.settings_
    assert model.n_iter_ == expected.n_iter_


@pytest.mark.parametrize("n_eigenvectors", ["auto", None, 5])
def test_the_model_says_what_the_clustering_used(rows, seed, n_eigenvectors):
    settings = {"n_eigenvectors": n_eigenvectors, "n_cluster_samples": len(rows) - 9}
    model = senet(seed, **settings).fit(rows)
    expected = {"auto": model.embedding_.shape[1], None: model.n_clusters_, 5: 5}
    assert model.settings_["n_eigenvectors"] == expected[n_eigenvectors]
    assert model.settings_["n_cluster_samples"] == len(rows) - 9


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"callbacks": Callback()}, "callbacks must be a list of them, got Callback"),
        ({"checkpoint": 3}, "checkpoint must be a folder's path, got 3"),
    ],
)
def test_what_no_training_can_use_is_refused(bad, message):
    X = np.random.default_rng(0).normal(size=(20, 5))
    with pytest.raises(ConfigError, match=message):
        SENet(2, max_iter=2, random_state=0, **bad).fit(X)


@pytest.mark.parametrize(
    "model", [SENet(2, max_iter=5, random_state=0), EnSC(2, random_state=0)]
)
def test_a_fit_that_failed_leaves_nothing_of_another_one(model):
    X = np.random.default_rng(0).normal(size=(40, 8))
    model.fit(X)
    with pytest.raises(DegenerateError):
        model.set_params(gamma=1e-6, gamma_scale="absolute").fit(X)
    for name in ("labels_", "coefficients_", "affinity_matrix_", "embedding_"):
        assert not hasattr(model, name)
    if isinstance(model, SENet):
        with pytest.raises(NotFittedError):
            objective_gap(model, X)
