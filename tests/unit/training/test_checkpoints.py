"""Files of checkpoints, trainings that go on from them, and signals held back."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from problems import trainable, unit_data
from stopping import FailAt, Spoil, StopError

from selfexpress.config import NetworkConfig, TrainConfig
from selfexpress.errors import (
    CheckpointError,
    ConfigError,
    ConvergenceWarning,
    DamagedFileWarning,
    DegenerateError,
    DegenerateWarning,
)
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.rows.sources import ArraySource
from selfexpress.training import checkpoints as module
from selfexpress.training.callbacks import Callback
from selfexpress.training.checkpoints import (
    CHECKPOINT,
    Checkpoints,
    Progress,
    held_back,
    read_checkpoint,
    require_checkpoint,
)
from selfexpress.training.loop import train

TENSORS = {
    "weight": torch.arange(12, dtype=torch.float32).reshape(3, 4),
    "half": torch.arange(4, dtype=torch.bfloat16),
    "count": torch.tensor(7),
    "turned": torch.arange(6.0).reshape(2, 3).T,
    "empty": torch.zeros(0, 3),
}
HISTORY = torch.arange(200.0).reshape(40, 5)
SETTINGS = {"gamma": 20.0, "max_iter": 12, "batch_size": 8, "block_size": 7}


def save(folder, step, tensors=TENSORS, history=HISTORY, **changes):
    """Save a step; return its file."""
    Checkpoints(folder).save(Progress(step, **changes), tensors, history)
    return folder / f"step-{step:012d}.safetensors"


def newest(folder):
    return Checkpoints(folder).newest()


def steps(folder: Path) -> list[int]:
    return sorted(int(path.stem.partition("-")[2]) for path in folder.iterdir())


def config(**changes):
    return TrainConfig(**{"algorithm": "two_pass", **SETTINGS, **changes})


def run(folder, *callbacks, seed=0, seconds=0.0, problem=None, **changes):
    """Train with checkpoints, by default after every step; return network and history.

    Without a folder there are none.
    """
    network, source = problem or trainable(seed)
    history = train(
        network,
        source,
        config(**changes),
        seed=seed,
        callbacks=callbacks,
        checkpoints=folder and Checkpoints(folder, seconds=seconds),
    )
    return network, history


def stop_at(step, folder, **settings):
    """Train until an error ends it; that step is not saved any more."""
    with pytest.raises(StopError):
        run(folder, FailAt(step), **settings)


class Heard(Callback):
    def __init__(self):
        self.steps = []

    def on_step_end(self, state):
        self.steps.append(state.step)


def assert_same_weights(first, second):
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]), name


# Files


def test_what_was_saved_comes_back(tmp_path):
    folder = tmp_path / "a" / "b"
    save(folder, 5, rate_factor=0.5, settled_at=3)
    found = newest(folder)
    assert found.progress == Progress(5, 0.5, settled_at=3)
    assert torch.equal(found.tensors.pop("history"), HISTORY[:5])
    assert found.tensors.keys() == {f"state.{name}" for name in TENSORS}
    for name, tensor in TENSORS.items():
        assert found.tensors[f"state.{name}"].dtype == tensor.dtype
        assert torch.equal(found.tensors[f"state.{name}"], tensor)


def test_the_last_two_are_kept_and_later_ones_go(tmp_path):
    assert newest(tmp_path) is None
    for step in (1, 2, 10, 30):
        save(tmp_path, step)
    assert steps(tmp_path) == [10, 30]
    assert newest(tmp_path).progress.step == 30
    # A training that writes step 15 now has gone back behind step 30.
    save(tmp_path, 15)
    assert steps(tmp_path) == [10, 15]


def test_remnants_of_killed_processes_are_removed_and_other_files_left(tmp_path):
    (tmp_path / ".0123456789abcdef.safetensors").write_bytes(b"half")
    mine = {"step-notes.txt", "model.safetensors"}
    for name in mine:
        (tmp_path / name).write_text("mine")
    path = save(tmp_path, 1)
    assert {path.name for path in tmp_path.iterdir()} == {path.name, *mine}


def test_no_flipped_bit_changes_what_is_read(tmp_path):
    """Any flip is refused, or lies in what has no meaning (spaces of the header)."""
    path = save(tmp_path, 1, {"a": torch.tensor([1, 2])}, torch.ones(2, 2))
    content, expected = path.read_bytes(), read_checkpoint(path)
    messages = []
    for place, byte in enumerate(content):
        path.write_bytes(content[:place] + bytes([byte ^ 0x10]) + content[place + 1 :])
        try:
            found = read_checkpoint(path)
        except CheckpointError as error:
            messages.append(str(error))
        else:
            assert (found.progress, found.fingerprint) == (expected.progress, {})
            for name, tensor in expected.tensors.items():
                assert torch.equal(found.tensors[name], tensor)
    assert len(messages) > 0.9 * len(content)
    assert not any("\n" in message for message in messages)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_damaged_newest_is_named_and_the_one_before_it_taken(share, tmp_path):
    save(tmp_path, 1)
    path = save(tmp_path, 2)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.warns(DamagedFileWarning, match=path.name):
        assert newest(tmp_path).progress.step == 1
    # Going on overwrites the damaged one and leaves two intact ones.
    save(tmp_path, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert newest(tmp_path).progress.step == 2
    assert steps(tmp_path) == [1, 2]


def test_nothing_intact_is_refused_with_a_warning_each(tmp_path):
    for step in (1, 2):
        save(tmp_path, step)
    for path in tmp_path.iterdir():
        path.write_bytes(b"")
    with (
        pytest.warns(DamagedFileWarning) as caught,
        pytest.raises(CheckpointError, match="all of its 2 are damaged"),
    ):
        newest(tmp_path)
    assert len(caught) == 2


def test_a_sound_checkpoint_that_cannot_be_read_is_not_passed_over(
    tmp_path, monkeypatch
):
    """Going on from an earlier one would delete it."""
    save(tmp_path, 1)
    path = save(tmp_path, 2)
    with monkeypatch.context() as later:
        later.setattr(module, "CHECKPOINT", replace(CHECKPOINT, version=2))
        with pytest.raises(CheckpointError, match="must be 2, got 1"):
            newest(tmp_path)
    path.unlink()
    path.symlink_to(tmp_path / "on a disk that is not mounted")
    with pytest.raises(CheckpointError, match="there is none"):
        newest(tmp_path)


@pytest.mark.parametrize(
    "facts",
    [
        [1],
        {"standing": {}},
        {"standing": None, "fingerprint": {}},
        {"standing": {}, "fingerprint": None},
        {"standing": {"more": 1}, "fingerprint": {}},
        *(
            {"standing": asdict(Progress(3)) | change, "fingerprint": {}}
            for change in (
                {"step": -1},
                {"step": True},
                {"step": "1"},
                {"rate_factor": 2.0},
                {"rate_factor": 1},
                {"is_finished": 0},
                *({"settled_at": moment} for moment in (0, -1, 4, "3", 1.5, True)),
            )
        ),
    ],
    ids=str,
)
def test_facts_that_cannot_be_are_refused_even_with_a_right_checksum(facts, tmp_path):
    CHECKPOINT.write(tmp_path / "x", {"facts": facts}, {"history": HISTORY[:3]})
    with pytest.raises(CheckpointError, match="must be a whole training checkpoint"):
        read_checkpoint(tmp_path / "x")


def test_checkpoints_of_before_there_was_a_rule_that_ends_training(tmp_path):
    earlier = {"step": 3, "rate_factor": 1.0, "is_finished": False}
    facts = {"step": 3, "facts": {"standing": earlier, "fingerprint": {}}}
    CHECKPOINT.write(tmp_path / "x", facts, {"history": HISTORY[:3]})
    assert read_checkpoint(tmp_path / "x").progress == Progress(3)


# What a full disk, a vanished and a read-only folder do: tests/reliability.


def test_settings_that_no_training_could_go_on_from_are_refused(tmp_path):
    assert require_checkpoint(None, None) is None
    assert require_checkpoint(str(tmp_path / "a"), 0) == tmp_path / "a"
    assert (tmp_path / "a").is_dir()
    with pytest.raises(ConfigError, match="must be a folder's path, got 3"):
        require_checkpoint(3, 0)
    with pytest.raises(ConfigError, match="random_state must be fixed"):
        require_checkpoint("folder", None)
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="must name a folder"):
        require_checkpoint(tmp_path / "file", 0)


# Resuming


@pytest.mark.parametrize("algorithm", ["naive", "two_pass"])
@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_an_interrupted_training_ends_as_an_undisturbed_one(
    algorithm, optimizer, seed, tmp_path
):
    chosen = {"algorithm": algorithm, "optimizer": optimizer, "seed": seed}
    undisturbed, expected = run(None, **chosen)
    for step in (1, 4, 11):
        stop_at(step, tmp_path, **chosen)
    heard = Heard()
    network, actual = run(tmp_path, heard, **chosen)
    # The step at which it failed was not saved: it is taken again.
    assert heard.steps == [11, 12]
    assert_same_weights(network, undisturbed)
    for name, values in expected.items():
        np.testing.assert_array_equal(actual[name], values)


def test_a_training_that_a_callback_ended_stays_ended_and_says_so(tmp_path):
    class StopEarly(Callback):
        def on_step_end(self, state):
            state.should_stop = state.step == 3

    assert len(run(tmp_path, StopEarly())[1]["objective"]) == 3
    with pytest.warns(ConvergenceWarning, match="ended by a callback after 3 of"):
        assert len(run(tmp_path)[1]["objective"]) == 3


def test_the_clock_decides_when_a_checkpoint_is_written(tmp_path):
    stop_at(5, tmp_path, seconds=1e9)
    assert newest(tmp_path).progress.step == 0
    run(tmp_path, seconds=1e9)
    assert newest(tmp_path).progress.step == 12


def rows_turned_at(place):
    rows = unit_data(30, 5, seed=0)
    rows[place] = -rows[place]
    return ArraySource(rows, dtype=torch.float64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gamma": 21.0}, r"gamma \(20.0 there, 21.0 here\)"),
        ({"max_iter": 13}, "max_iter"),
        ({"optimizer": "muon"}, "optimizer"),
        ({"seed": 1, "problem": trainable(0)}, "random_state"),
        ({"problem": trainable(0, n_samples=29)}, "n_samples"),
        *(
            ({"problem": (trainable(0)[0], rows_turned_at(place))}, "differ in rows")
            for place in (1, 15, 29)
        ),
    ],
)
def test_another_training_is_refused_and_what_differs_named(change, message, tmp_path):
    run(tmp_path)
    with pytest.raises(CheckpointError, match=message) as caught:
        run(tmp_path, **change)
    assert "Use those, or another folder" in str(caught.value)


def test_block_size_may_change_between_two_parts(tmp_path):
    stop_at(4, tmp_path)
    _, history = run(tmp_path, block_size=30, algorithm="naive")
    assert len(history["objective"]) == 12


@pytest.mark.parametrize("name", ["state.values", "history", "state.more"])
def test_tensors_of_another_shape_or_name_are_refused(name, tmp_path):
    stop_at(5, tmp_path)
    found = newest(tmp_path)
    found.tensors[name] = torch.zeros(2, 2)
    facts = {"standing": asdict(found.progress), "fingerprint": found.fingerprint}
    CHECKPOINT.write(max(tmp_path.iterdir()), {"facts": facts}, found.tensors)
    with pytest.raises(CheckpointError, match="must hold the state"):
        run(tmp_path)


# A training that diverges without checkpoints, or once: tests/reliability.


def test_the_smaller_rate_outlives_an_interruption(tmp_path):
    chosen = {"schedule": "constant", "max_iter": 20}
    with pytest.warns(DegenerateWarning):
        run(tmp_path, Spoil(5), seconds=1e9, **chosen)
    found = newest(tmp_path)
    assert found.progress.rate_factor == 0.5
    # As if it had been interrupted at step 10.
    facts = {"standing": asdict(Progress(10, 0.5)), "fingerprint": found.fingerprint}
    found.tensors["history"] = found.tensors["history"][:10]
    CHECKPOINT.write(max(tmp_path.iterdir()), {"facts": facts}, found.tensors)
    _, history = run(tmp_path, **chosen)
    assert history["learning_rate"][10:] == pytest.approx(np.full(10, 5e-4))


def test_after_two_retries_the_problem_is_named(tmp_path):
    with (
        pytest.warns(DegenerateWarning) as caught,
        pytest.raises(DegenerateError, match=r"nan at step.*learning_rate"),
    ):
        run(tmp_path, Spoil(5, times=99), seconds=1e9)
    assert len(caught) == 2
    assert newest(tmp_path).progress.step == 0


@pytest.mark.gpu
@pytest.mark.parametrize("algorithm", ["naive", "two_pass"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_interrupted_training_on_a_gpu_goes_on(algorithm, precision, tmp_path):
    """Kernels of a GPU may add up in another order: close, not equal."""
    chosen = {"algorithm": algorithm, "precision": precision, "engine": "fused"}

    def fresh():
        generator = torch.Generator().manual_seed(0)
        sizes = NetworkConfig((32,), 32)
        network = SelfExpressiveNetwork(16, sizes, generator=generator).cuda()
        rows = unit_data(64, 16, seed=0).float().cuda()
        return network, ArraySource(rows, device="cuda")

    _, expected = run(None, problem=fresh(), **chosen)
    stop_at(5, tmp_path, problem=fresh(), **chosen)
    heard = Heard()
    _, actual = run(tmp_path, heard, problem=fresh(), **chosen)
    assert heard.steps == [5, 6, 7, 8, 9, 10, 11, 12]
    np.testing.assert_allclose(actual["objective"], expected["objective"], rtol=2e-2)


# Signals


@pytest.fixture(autouse=True)
def _heed_ctrl_c():
    """Ctrl-C as in a terminal: processes in the background are born to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


# What Ctrl-C and SIGTERM do to a fit: tests/reliability.


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


def test_other_threads_leave_signals_alone():
    results = []

    def work():
        with held_back():
            results.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert results == [signal.default_int_handler]
