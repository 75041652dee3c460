"""Whole trainings: their history, callbacks, and memory that does not suffice."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from problems import trainable

from selfexpress.config import TrainConfig
from selfexpress.errors import DegenerateError, MemoryWarning
from selfexpress.training import loop, optimizers
from selfexpress.training.callbacks import Callback
from selfexpress.training.loop import train
from selfexpress.training.objective import GRADIENT_STEPS
from selfexpress.training.optimizers import OPTIMIZERS
from selfexpress.training.step import RECORDED, PermutationSampler


def run(*callbacks, seed=0, network=None, **changes):
    """Train a small network; return it and its history."""
    settings = {"gamma": 20.0, "max_iter": 12, "batch_size": 8, "block_size": 30}
    config = TrainConfig(**settings | {"algorithm": "two_pass"} | changes)
    fresh, source = trainable(seed)
    network = network or fresh
    return network, train(network, source, config, seed=seed, callbacks=callbacks)


def test_algorithms_train_the_same_network(seed):
    (first, naive), (second, passes) = (
        run(seed=seed, max_iter=20, block_size=7, algorithm=algorithm)
        for algorithm in ("naive", "two_pass")
    )
    # History is float32 and rounding differs between the two sums.
    np.testing.assert_allclose(naive["objective"], passes["objective"], rtol=1e-5)
    for name, parameter in first.named_parameters():
        other = second.get_parameter(name)
        torch.testing.assert_close(parameter, other, rtol=1e-5, atol=1e-7)


def test_training_lowers_the_objective():
    _, history = run(max_iter=300, batch_size=30)
    assert history["objective"][-1] < 0.9 * history["objective"][0]


def test_history_is_consistent_by_step():
    start = trainable()[0].threshold.item()
    _, history = run(batch_size=30)
    assert set(history) == set(RECORDED)
    parts = 10.0 * history["reconstruction"] + history["penalty"]
    np.testing.assert_allclose(history["objective"], parts, rtol=1e-5)
    assert history["threshold"][0] == pytest.approx(start)
    assert history["threshold"][-1] != pytest.approx(start)


def test_gradient_handed_to_the_optimizer_has_at_most_the_clipped_norm(monkeypatch):
    norms = []

    class Norm:
        def __init__(self, parameters):
            self.parameters = parameters

        def step(self, rate, gradient_scale):
            norms.append(float((self.parameters.gradients * gradient_scale).norm()))

        def state(self):
            return {}

    monkeypatch.setitem(OPTIMIZERS, "adam", Norm)
    run(max_iter=5)
    np.testing.assert_allclose(norms, 1e-3, rtol=1e-4)


def test_an_objective_that_is_not_finite_is_named():
    network, _ = trainable()
    with torch.no_grad():
        network.threshold.fill_(float("nan"))
    with pytest.raises(DegenerateError, match=r"nan at step 5.*learning_rate"):
        run(network=network, max_iter=5)


# Callbacks


class Noting(Callback):
    def __init__(self, events, name=""):
        self.events, self.name = events, name

    def on_train_begin(self, state):
        self.events.append(f"begin {self.name}")

    def on_step_end(self, state):
        self.events.append(state.step)
        state.should_stop = state.step == 3

    def on_train_end(self, state):
        self.events.append(f"end {self.name}")


def test_a_callback_may_stop_training_and_is_always_called_at_the_end():
    events = []
    _, history = run(Noting(events, "a"), max_iter=10)
    assert events == ["begin a", 1, 2, 3, "end a"]
    assert len(history["objective"]) == 3


def test_a_callback_that_fails_to_begin_leaves_no_other_open():
    class Failing(Callback):
        def on_train_begin(self, state):
            raise OSError("the disk is full")

        def on_train_end(self, state):
            raise AssertionError("it has not begun")

    events = []
    with pytest.raises(OSError, match="disk is full"):
        run(Noting(events, "a"), Failing(), Noting(events, "b"))
    assert events == ["begin a", "end a"]


# Batches


def test_every_row_comes_once_before_any_comes_again(seed):
    sampler = PermutationSampler(10, 3, seed=seed)
    dealt = torch.cat([sampler.batch(step) for step in range(20)])
    epochs = dealt.split(10)
    assert all(sorted(epoch.tolist()) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch.tolist()) for epoch in epochs}) > 1


def test_a_batch_depends_on_seed_and_step_alone(seed):
    walked = PermutationSampler(11, 4, seed=seed)
    for step in range(9):
        expected = walked.batch(step)
        assert torch.equal(PermutationSampler(11, 4, seed=seed).batch(step), expected)


def test_a_batch_is_never_larger_than_the_data():
    assert sorted(PermutationSampler(3, 100, seed=0).batch(5).tolist()) == [0, 1, 2]


# Memory


def failing_gradient(real, largest, error):
    def gradient(network, batch, source, config):
        if config.block_size > largest:
            raise error
        return real(network, batch, source, config)

    return gradient


def assert_close_weights(network, expected):
    for name, parameter in network.named_parameters():
        other = expected.get_parameter(name)
        torch.testing.assert_close(parameter, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_blocks_that_do_not_fit_into_memory_are_halved(error, seed, monkeypatch):
    expected, _ = run(seed=seed, block_size=7)
    fails = failing_gradient(GRADIENT_STEPS["two_pass"], 7, error)
    monkeypatch.setitem(GRADIENT_STEPS, "two_pass", fails)
    monkeypatch.setitem(GRADIENT_STEPS, "naive", failing_gradient(None, 0, error))
    with pytest.warns(MemoryWarning) as caught:
        network, _ = run(seed=seed, block_size=100, algorithm="naive")
    # Naive first, then blocks of 100, half of the 30 rows there are, half of 15.
    sizes = [str(warning.message).split("block_size=")[1][:3] for warning in caught]
    assert [size.rstrip(". S") for size in sizes] == ["100", "15", "7"]
    assert_close_weights(network, expected)


def test_recordings_that_do_not_fit_into_memory_are_made_anew(seed, monkeypatch):
    """A recorded step takes its memory when it is made, not when it is called."""
    expected, _ = run(seed=seed, block_size=7)

    def recorded(plain):
        if plain.config.algorithm == "naive" or plain.config.block_size > 7:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain

    monkeypatch.setattr(loop.PlainStep, "is_replayable", True)
    monkeypatch.setattr(loop, "GraphedStep", recorded)
    with pytest.warns(MemoryWarning) as caught:
        network, _ = run(seed=seed, block_size=100, algorithm="naive")
    assert len(caught) == 3
    assert_close_weights(network, expected)


def test_errors_that_less_memory_does_not_cure_are_not_held_for_lack_of_it(monkeypatch):
    fails = failing_gradient(None, 0, MemoryError("none left"))
    monkeypatch.setitem(GRADIENT_STEPS, "two_pass", fails)
    with pytest.warns(MemoryWarning), pytest.raises(MemoryError, match="none left"):
        run(block_size=7)
    fails = failing_gradient(None, 0, RuntimeError("shapes differ"))
    monkeypatch.setitem(GRADIENT_STEPS, "two_pass", fails)
    with pytest.raises(RuntimeError, match="shapes differ"):
        run(block_size=7)


def test_a_step_that_has_begun_to_move_is_not_taken_again(monkeypatch):
    """Momenta have changed already: to go on would be another training."""
    update = optimizers.adam_update
    calls = []

    def fails_halfway(values, gradients, first, *others, **settings):
        calls.append(len(calls))
        if len(calls) == 5:
            first.zero_()
            raise MemoryError("none left")
        update(values, gradients, first, *others, **settings)

    monkeypatch.setattr(optimizers, "adam_update", fails_halfway)
    with pytest.raises(MemoryError, match="none left"):
        run()
    assert len(calls) == 5
