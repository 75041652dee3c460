from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from problems import small_network, unit_data

from selfexpress.config import TrainConfig
from selfexpress.errors import DegenerateError
from selfexpress.rows.sources import ArraySource
from selfexpress.training.callbacks import Callback, ProgressBar
from selfexpress.training.loop import train
from selfexpress.training.optimizers import OPTIMIZERS
from selfexpress.training.step import RECORDED


def problem(seed=0):
    source = ArraySource(unit_data(30, 5, seed=seed), dtype=torch.float64)
    return small_network(5, seed=seed, threshold=0.0), source


def test_algorithms_train_the_same_network(seed):
    first, source = problem(seed)
    second = copy.deepcopy(first)
    settings = {"gamma": 20.0, "max_iter": 20, "batch_size": 8, "block_size": 7}
    naive = train(first, source, TrainConfig(algorithm="naive", **settings), seed=seed)
    two_pass = TrainConfig(algorithm="two_pass", **settings)
    passes = train(second, source, two_pass, seed=seed)

    # History is float32 and rounding differs between the two sums.
    np.testing.assert_allclose(naive["objective"], passes["objective"], rtol=1e-5)
    for name, parameter in first.named_parameters():
        other = second.get_parameter(name)
        torch.testing.assert_close(parameter, other, rtol=1e-5, atol=1e-7)


def test_training_lowers_the_objective():
    network, source = problem()
    config = TrainConfig(gamma=20.0, max_iter=300, batch_size=30, algorithm="naive")
    history = train(network, source, config, seed=0)
    assert history["objective"][-1] < 0.9 * history["objective"][0]


def test_history_is_consistent_by_step():
    network, source = problem()
    config = TrainConfig(gamma=20.0, max_iter=10, batch_size=30, algorithm="naive")
    start = network.threshold.item()
    history = train(network, source, config, seed=0)
    assert set(history) == set(RECORDED)
    parts = 10.0 * history["reconstruction"] + history["penalty"]
    np.testing.assert_allclose(history["objective"], parts, rtol=1e-5)
    assert history["threshold"][0] == pytest.approx(start)
    assert history["threshold"][-1] != pytest.approx(start)


def test_gradient_handed_to_the_optimizer_has_at_most_the_clipped_norm(monkeypatch):
    network, source = problem()
    norms = []

    class Norm:
        def __init__(self, parameters):
            self.parameters = parameters

        def step(self, rate, gradient_scale):
            norms.append(float((self.parameters.gradients * gradient_scale).norm()))

        def state(self):
            return {}

    monkeypatch.setitem(OPTIMIZERS, "adam", Norm)
    config = TrainConfig(gamma=20.0, max_iter=5, algorithm="naive")
    train(network, source, config, seed=0)
    np.testing.assert_allclose(norms, 1e-3, rtol=1e-4)


def test_a_callback_may_stop_training_and_always_hears_the_end():
    network, source = problem()
    events = []

    class Stopper(Callback):
        def on_train_begin(self, state):
            events.append("begin")

        def on_step_end(self, state):
            events.append(state.step)
            state.should_stop = state.step == 3

        def on_train_end(self, state):
            events.append("end")

    config = TrainConfig(max_iter=10, algorithm="naive")
    history = train(network, source, config, seed=0, callbacks=[Stopper()])
    assert events == ["begin", 1, 2, 3, "end"]
    assert len(history["objective"]) == 3


def test_an_objective_that_is_not_finite_is_named():
    network, source = problem()
    with torch.no_grad():
        network.threshold.fill_(float("nan"))
    config = TrainConfig(max_iter=5, algorithm="naive")
    with pytest.raises(DegenerateError, match=r"nan at step 5.*learning_rate"):
        train(network, source, config, seed=0)


def test_progress_goes_to_stderr(capsys):
    network, source = problem()
    config = TrainConfig(max_iter=20, algorithm="naive")
    train(network, source, config, seed=0, callbacks=[ProgressBar()])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "20/20" in captured.err
