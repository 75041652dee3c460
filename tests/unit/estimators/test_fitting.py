"""A start that fails is followed by one that does not."""

from __future__ import annotations

import pytest
import torch

from selfexpress import SENet, make_subspaces
from selfexpress.errors import CheckpointError, DegenerateError, DegenerateWarning
from selfexpress.training import loop


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
