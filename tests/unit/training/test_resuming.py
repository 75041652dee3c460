from __future__ import annotations

import copy
import os
import signal
import threading

import numpy as np
import pytest
import torch
from problems import small_network, unit_data
from stopping import FailAt, StopError

from selfexpress.config import NetworkConfig, TrainConfig
from selfexpress.errors import (
    CheckpointError,
    ConvergenceWarning,
    DamagedFileWarning,
    DegenerateError,
    DegenerateWarning,
    MemoryWarning,
)
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.rows.sources import ArraySource
from selfexpress.training import loop, optimizers
from selfexpress.training.callbacks import Callback
from selfexpress.training.checkpoints import CheckpointFolder, Checkpoints, held_back
from selfexpress.training.loop import train

SETTINGS = {"gamma": 20.0, "max_iter": 12, "batch_size": 8, "block_size": 7}


@pytest.fixture(autouse=True)
def _heed_ctrl_c():
    """Ctrl-C as in a terminal: processes in the background are born to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def problem(seed=0):
    source = ArraySource(unit_data(30, 5, seed=seed), dtype=torch.float64)
    return small_network(5, seed=seed, threshold=0.0), source


def config(**changes):
    return TrainConfig(**{"algorithm": "two_pass", **SETTINGS, **changes})


def always(folder):
    """Checkpoints after every step."""
    return Checkpoints(folder, seconds=0.0)


def stop_at(step, network, source, folder, *, seed):
    """Train until an error ends it, with a checkpoint after every step."""
    with pytest.raises(StopError):
        train(
            network,
            source,
            config(),
            seed=seed,
            callbacks=[FailAt(step)],
            checkpoints=always(folder),
        )


class Hear(Callback):
    def __init__(self):
        self.steps = []

    def on_step_end(self, state):
        self.steps.append(state.step)


def assert_same_weights(first, second):
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]), name


@pytest.mark.parametrize("algorithm", ["naive", "two_pass"])
@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_an_interrupted_training_ends_as_an_undisturbed_one(
    algorithm, optimizer, seed, tmp_path
):
    chosen = config(algorithm=algorithm, optimizer=optimizer)
    undisturbed, source = problem(seed)
    expected = train(undisturbed, source, chosen, seed=seed)
    for step in (1, 4, 11):
        network, _ = problem(seed)
        with pytest.raises(StopError):
            train(
                network, source, chosen, seed=seed,
                callbacks=[FailAt(step)], checkpoints=always(tmp_path),
            )  # fmt: skip
    network, _ = problem(seed)
    heard = Hear()
    actual = train(
        network, source, chosen, seed=seed,
        callbacks=[heard], checkpoints=always(tmp_path),
    )  # fmt: skip
    # The step at which it failed was not saved: it is taken again.
    assert heard.steps == [11, 12]
    assert_same_weights(network, undisturbed)
    for name, values in expected.items():
        np.testing.assert_array_equal(actual[name], values)


def test_checkpoints_themselves_change_nothing(seed, tmp_path):
    without, source = problem(seed)
    with_them = copy.deepcopy(without)
    train(without, source, config(), seed=seed)
    train(with_them, source, config(), seed=seed, checkpoints=always(tmp_path))
    assert_same_weights(without, with_them)


def test_a_finished_training_is_not_done_again(tmp_path):
    first, source = problem()
    expected = train(first, source, config(), seed=0, checkpoints=always(tmp_path))
    second, _ = problem()
    heard = Hear()
    actual = train(
        second, source, config(), seed=0,
        callbacks=[heard], checkpoints=always(tmp_path),
    )  # fmt: skip
    assert heard.steps == []
    assert_same_weights(first, second)
    np.testing.assert_array_equal(actual["objective"], expected["objective"])


def test_a_training_that_a_callback_ended_stays_ended_and_says_so(tmp_path):
    class StopEarly(Callback):
        def on_step_end(self, state):
            state.should_stop = state.step == 3

    def n_steps(*callbacks):
        network, source = problem()
        history = train(
            network, source, config(), seed=0,
            callbacks=callbacks, checkpoints=always(tmp_path),
        )  # fmt: skip
        return len(history["objective"])

    assert n_steps(StopEarly()) == 3
    with pytest.warns(ConvergenceWarning, match="ended by a callback after 3 of"):
        assert n_steps() == 3


def test_the_clock_decides_when_a_checkpoint_is_written(tmp_path):
    network, source = problem()
    rare = Checkpoints(tmp_path, seconds=1e9)
    with pytest.raises(StopError):
        train(
            network, source, config(), seed=0,
            callbacks=[FailAt(5)], checkpoints=rare,
        )  # fmt: skip
    assert CheckpointFolder(tmp_path).newest().step == 0
    network, _ = problem()
    train(network, source, config(), seed=0, checkpoints=rare)
    assert CheckpointFolder(tmp_path).newest().step == 12


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"gamma": 21.0}, r"gamma \(20.0 there, 21.0 here\)"),
        ({"max_iter": 13}, "max_iter"),
        ({"optimizer": "muon"}, "optimizer"),
    ],
)
def test_other_settings_are_refused_by_name(change, name, tmp_path):
    network, source = problem()
    train(network, source, config(), seed=0, checkpoints=always(tmp_path))
    with pytest.raises(CheckpointError, match=name) as caught:
        train(network, source, config(**change), seed=0, checkpoints=always(tmp_path))
    assert "Use those, or another folder" in str(caught.value)


def test_other_rows_or_another_seed_are_refused_by_name(tmp_path):
    network, source = problem()
    train(network, source, config(), seed=0, checkpoints=always(tmp_path))
    other = ArraySource(unit_data(30, 5, seed=9), dtype=torch.float64)
    with pytest.raises(CheckpointError, match="differ in rows"):
        train(network, other, config(), seed=0, checkpoints=always(tmp_path))
    with pytest.raises(CheckpointError, match="random_state"):
        train(network, source, config(), seed=1, checkpoints=always(tmp_path))
    fewer = ArraySource(unit_data(29, 5, seed=0), dtype=torch.float64)
    with pytest.raises(CheckpointError, match="n_samples"):
        train(network, fewer, config(), seed=0, checkpoints=always(tmp_path))


def test_block_size_may_change_between_two_parts(tmp_path):
    network, source = problem()
    stop_at(4, network, source, tmp_path, seed=0)
    changed = config(block_size=30, algorithm="naive")
    history = train(network, source, changed, seed=0, checkpoints=always(tmp_path))
    assert len(history["objective"]) == 12


def test_a_damaged_newest_checkpoint_costs_no_more_than_its_steps(seed, tmp_path):
    undisturbed, source = problem(seed)
    train(undisturbed, source, config(), seed=seed)
    network, _ = problem(seed)
    stop_at(6, network, source, tmp_path, seed=seed)
    newest = max(tmp_path.iterdir())
    newest.write_bytes(newest.read_bytes()[:-1])
    network, _ = problem(seed)
    with pytest.warns(DamagedFileWarning, match=newest.name):
        train(network, source, config(), seed=seed, checkpoints=always(tmp_path))
    assert_same_weights(network, undisturbed)


@pytest.mark.parametrize(
    "change",
    [
        {"standing": {"step": 4, "rate_factor": 2.0, "is_finished": False}},
        {"standing": {"step": 3, "rate_factor": 1.0, "is_finished": False}},
        {"standing": None},
    ],
    ids=str,
)
def test_facts_that_cannot_be_are_refused(change, tmp_path):
    network, source = problem()
    stop_at(5, network, source, tmp_path, seed=0)
    folder = CheckpointFolder(tmp_path)
    newest = folder.newest()
    folder.save(newest.step, newest.tensors, {**newest.facts, **change})
    with pytest.raises(CheckpointError, match="must hold the state"):
        train(network, source, config(), seed=0, checkpoints=always(tmp_path))


def test_tensors_of_another_shape_are_refused(tmp_path):
    network, source = problem()
    stop_at(5, network, source, tmp_path, seed=0)
    folder = CheckpointFolder(tmp_path)
    newest = folder.newest()
    newest.tensors["state.values"] = newest.tensors["state.values"][:-1].clone()
    folder.save(newest.step, newest.tensors, newest.facts)
    with pytest.raises(CheckpointError, match="must hold the state"):
        train(network, source, config(), seed=0, checkpoints=always(tmp_path))


class Spoil(Callback):
    """Make the weights useless after some step, as often as asked for."""

    def __init__(self, step, value, times):
        self.step, self.value, self.left = step, value, times

    def on_step_end(self, state):
        if state.step == self.step and self.left:
            self.left -= 1
            with torch.no_grad():
                state.network.threshold.fill_(self.value)


# NaN shows at once; so does a threshold that makes every coefficient huge.
@pytest.mark.parametrize("value", [float("nan"), -1e6])
def test_a_training_that_diverges_goes_back_with_half_the_rate(value, tmp_path):
    network, source = problem()
    # Checkpoints only at the start: the damage of step 5 is in none of them.
    with pytest.warns(DegenerateWarning, match="from step 0 with 0.5 times"):
        history = train(
            network, source, config(schedule="constant"), seed=0,
            callbacks=[Spoil(5, value, 1)],
            checkpoints=Checkpoints(tmp_path, seconds=1e9),
        )  # fmt: skip
    assert history["learning_rate"] == pytest.approx(np.full(12, 5e-4))
    assert np.isfinite(history["objective"]).all()
    assert all(torch.isfinite(weight).all() for weight in network.parameters())


def test_the_smaller_rate_outlives_an_interruption(tmp_path):
    settings = config(schedule="constant", max_iter=20)
    network, source = problem()
    with pytest.warns(DegenerateWarning):
        train(
            network, source, settings, seed=0, callbacks=[Spoil(5, float("nan"), 1)],
            checkpoints=Checkpoints(tmp_path, seconds=1e9),
        )  # fmt: skip
    newest = CheckpointFolder(tmp_path).newest()
    assert newest.facts["standing"]["rate_factor"] == 0.5
    # As if it had been interrupted at step 10.
    folder = CheckpointFolder(tmp_path)
    standing = {"step": 10, "rate_factor": 0.5, "is_finished": False}
    newest.tensors["history"] = newest.tensors["history"][:10].clone()
    folder.save(10, newest.tensors, {**newest.facts, "standing": standing})
    network, _ = problem()
    history = train(network, source, settings, seed=0, checkpoints=always(tmp_path))
    assert history["learning_rate"][10:] == pytest.approx(np.full(10, 5e-4))


def test_after_two_retries_the_problem_is_named(tmp_path):
    network, source = problem()
    with (
        pytest.warns(DegenerateWarning) as caught,
        pytest.raises(DegenerateError, match=r"nan at step.*learning_rate"),
    ):
        train(
            network, source, config(), seed=0, callbacks=[Spoil(5, float("nan"), 99)],
            checkpoints=Checkpoints(tmp_path, seconds=1e9),
        )  # fmt: skip
    assert len(caught) == 2
    assert CheckpointFolder(tmp_path).newest().step == 0


def test_an_explosion_is_named_without_checkpoints():
    network, source = problem()
    with pytest.raises(DegenerateError, match=r"must not explode.*at step 12"):
        train(network, source, config(), seed=0, callbacks=[Spoil(5, -1e6, 99)])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_before_it_leaves(number, seed, tmp_path):
    undisturbed, source = problem(seed)
    train(undisturbed, source, config(), seed=seed)

    class Raise(Callback):
        def on_step_end(self, state):
            if state.step == 5:
                os.kill(os.getpid(), number)

    def leave(*_):
        raise StopError

    network, _ = problem(seed)
    before = signal.signal(number, leave)
    try:
        with pytest.raises(StopError):
            train(
                network, source, config(), seed=seed,
                callbacks=[Raise()], checkpoints=Checkpoints(tmp_path, seconds=1e9),
            )  # fmt: skip
        assert signal.getsignal(number) is leave
    finally:
        signal.signal(number, before)
    assert CheckpointFolder(tmp_path).newest().step == 5
    network, _ = problem(seed)
    train(network, source, config(), seed=seed, checkpoints=always(tmp_path))
    assert_same_weights(network, undisturbed)


def test_a_second_signal_does_not_wait():
    def interrupt_twice():
        with held_back() as interruption:
            os.kill(os.getpid(), signal.SIGINT)
            assert interruption.number == signal.SIGINT
            os.kill(os.getpid(), signal.SIGINT)
            pytest.fail("the second signal was held back as well")

    with pytest.raises(KeyboardInterrupt):
        interrupt_twice()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_signals_that_are_ignored_stay_ignored():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with held_back() as interruption:
            os.kill(os.getpid(), signal.SIGTERM)
        assert interruption.number is None
    finally:
        signal.signal(signal.SIGTERM, before)


def test_other_threads_leave_signals_alone(tmp_path):
    results = []

    def work():
        with held_back():
            results.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert results == [signal.default_int_handler]


def failing_gradient(real, largest, error):
    def gradient(network, batch, source, config):
        if config.block_size > largest:
            raise error
        return real(network, batch, source, config)

    return gradient


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
    from selfexpress.training.objective import GRADIENT_STEPS

    expected, source = problem(seed)
    network, _ = problem(seed)
    train(expected, source, config(block_size=7), seed=seed)

    real = GRADIENT_STEPS["two_pass"]
    fails = failing_gradient(real, 7, error)
    monkeypatch.setitem(GRADIENT_STEPS, "two_pass", fails)
    monkeypatch.setitem(GRADIENT_STEPS, "naive", failing_gradient(real, 0, error))
    with pytest.warns(MemoryWarning) as caught:
        train(network, source, config(block_size=100, algorithm="naive"), seed=seed)
    # Naive first, then blocks of 100, half of the 30 rows there are, half of 15.
    sizes = [str(warning.message).split("block_size=")[1][:3] for warning in caught]
    assert [size.rstrip(". S") for size in sizes] == ["100", "15", "7"]
    for name, parameter in network.named_parameters():
        other = expected.get_parameter(name)
        torch.testing.assert_close(parameter, other, rtol=1e-9, atol=1e-12)


def test_recordings_that_do_not_fit_into_memory_are_made_anew(seed, monkeypatch):
    """A recorded step takes its memory when it is made, not when it is called."""
    expected, source = problem(seed)
    network, _ = problem(seed)
    train(expected, source, config(block_size=7), seed=seed)

    def recorded(plain):
        if plain.config.algorithm == "naive" or plain.config.block_size > 7:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain

    monkeypatch.setattr(loop.PlainStep, "is_replayable", True)
    monkeypatch.setattr(loop, "GraphedStep", recorded)
    with pytest.warns(MemoryWarning) as caught:
        train(network, source, config(block_size=100, algorithm="naive"), seed=seed)
    assert len(caught) == 3
    for name, parameter in network.named_parameters():
        other = expected.get_parameter(name)
        torch.testing.assert_close(parameter, other, rtol=1e-9, atol=1e-12)


def test_a_callback_that_fails_to_begin_leaves_no_other_open():
    ended = []

    class Noting(Callback):
        def on_train_end(self, state):
            ended.append(self)

    class Failing(Noting):
        def on_train_begin(self, state):
            raise OSError("the disk is full")

        def on_train_end(self, state):
            raise AssertionError("it has not begun")

    first = Noting()
    network, source = problem()
    with pytest.raises(OSError, match="disk is full"):
        train(network, source, config(), seed=0, callbacks=[first, Failing(), Noting()])
    assert ended == [first]


def test_one_row_that_does_not_fit_is_an_error(monkeypatch):
    from selfexpress.training.objective import GRADIENT_STEPS

    network, source = problem()
    fails = failing_gradient(GRADIENT_STEPS["two_pass"], 0, MemoryError("none left"))
    monkeypatch.setitem(GRADIENT_STEPS, "two_pass", fails)
    with pytest.warns(MemoryWarning), pytest.raises(MemoryError, match="none left"):
        train(network, source, config(), seed=0)


def test_other_errors_of_a_step_are_not_held_for_lack_of_memory(monkeypatch):
    from selfexpress.training.objective import GRADIENT_STEPS

    network, source = problem()
    fails = failing_gradient(None, 0, RuntimeError("shapes differ"))
    monkeypatch.setitem(GRADIENT_STEPS, "two_pass", fails)
    with pytest.raises(RuntimeError, match="shapes differ"):
        train(network, source, config(), seed=0)


@pytest.mark.gpu
@pytest.mark.parametrize("algorithm", ["naive", "two_pass"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_interrupted_training_on_a_gpu_goes_on(algorithm, precision, tmp_path):
    """Kernels of a GPU may add up in another order: close, not equal."""
    chosen = config(algorithm=algorithm, precision=precision, engine="fused")
    rows = unit_data(64, 16, seed=0).float().cuda()
    source = ArraySource(rows, device="cuda")

    def fresh():
        generator = torch.Generator().manual_seed(0)
        sizes = NetworkConfig((32,), 32)
        return SelfExpressiveNetwork(16, sizes, generator=generator).cuda()

    expected = train(fresh(), source, chosen, seed=0)
    with pytest.raises(StopError):
        train(
            fresh(), source, chosen, seed=0,
            callbacks=[FailAt(5)], checkpoints=always(tmp_path),
        )  # fmt: skip
    heard = Hear()
    actual = train(
        fresh(), source, chosen, seed=0,
        callbacks=[heard], checkpoints=always(tmp_path),
    )  # fmt: skip
    assert heard.steps == [5, 6, 7, 8, 9, 10, 11, 12]
    np.testing.assert_allclose(actual["objective"], expected["objective"], rtol=2e-2)


def test_any_other_row_is_refused(tmp_path):
    rows = unit_data(200, 5, seed=0)
    network = problem()[0]
    same = ArraySource(rows, dtype=torch.float64)
    train(network, same, config(), seed=0, checkpoints=always(tmp_path))
    for place in (1, 100, 199):
        changed = rows.clone()
        changed[place] = -changed[place]
        other = ArraySource(changed, dtype=torch.float64)
        with pytest.raises(CheckpointError, match="differ in rows"):
            train(network, other, config(), seed=0, checkpoints=always(tmp_path))


def test_a_step_that_has_begun_to_move_is_not_taken_again(monkeypatch):
    """Momenta have changed already: to go on would be another training."""
    network, source = problem()
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
        train(network, source, config(), seed=0)
    assert len(calls) == 5
