from __future__ import annotations

import copy
import csv
import pickle
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from selfexpress.config import NetworkConfig, TrainConfig
from selfexpress.errors import ConfigError, DataError
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.rows.sources import ArraySource
from selfexpress.training.callbacks import (
    CSVLogger,
    ProgressBar,
    TensorBoardLogger,
    TrainState,
    require_callbacks,
)
from selfexpress.training.loop import train
from selfexpress.training.step import RECORDED


def trained(callback, seed=0):
    """Train a small network; return its history."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(30, 8, generator=generator)
    network = SelfExpressiveNetwork(8, NetworkConfig((16,), 8), generator=generator)
    config = TrainConfig(
        max_iter=23, batch_size=10, algorithm="naive", precision="float32",
        engine="plain",
    )  # fmt: skip
    return train(network, ArraySource(rows), config, seed=seed, callbacks=[callback])


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("every", [1, 10, 1000])
def test_a_csv_log_holds_the_history_of_the_model(every, tmp_path, seed):
    path = tmp_path / "log.csv"
    history = trained(CSVLogger(path, every), seed)
    lines = read(path)
    assert [int(line["step"]) for line in lines] == list(range(1, 24))
    for name in RECORDED:
        logged = [float(line[name]) for line in lines]
        np.testing.assert_array_equal(logged, history[name])


def state(step):
    history = torch.arange(20.0).repeat(len(RECORDED), 1).T
    return TrainState(step, 20, network=None, history=history)


@pytest.mark.parametrize(
    ("begin", "taken", "expected"),
    [
        (6, [7, 8, 9], range(1, 10)),
        (0, [1, 2, 3, 4, 2, 3], [1, 2, 3, 4, 2, 3]),
    ],
    ids=["resumed, from its first step", "gone back, twice"],
)
def test_steps_are_logged_of_a_training_that_was(begin, taken, expected, tmp_path):
    log = CSVLogger(tmp_path / "log.csv", every=2)
    log.on_train_begin(state(begin))
    for step in taken:
        log.on_step_end(state(step))
    log.on_train_end(state(taken[-1]))
    lines = read(tmp_path / "log.csv")
    assert [int(line["step"]) for line in lines] == list(expected)
    assert [float(line["penalty"]) + 1 for line in lines] == list(expected)


def test_a_log_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"must be a file .* No such file"):
        trained(CSVLogger(tmp_path / "gone" / "log.csv"))


@pytest.mark.parametrize("kind", [ProgressBar, partial(CSVLogger, "log.csv")])
def test_a_log_that_is_never_written_is_refused(kind):
    with pytest.raises(ConfigError, match="every must be a positive integer, got 0"):
        kind(every=0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "callbacks must be a list of them, got int"),
        (ProgressBar(), "callbacks must be a list of them, got ProgressBar"),
        ([ProgressBar(), 3], "callbacks must hold Callback objects, got 3"),
        ([ProgressBar], "callbacks must hold Callback objects, got <class"),
    ],
)
def test_what_is_no_list_of_callbacks_is_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        require_callbacks(given)


def test_callbacks_may_be_none_a_list_or_a_tuple():
    bar = ProgressBar()
    assert require_callbacks(None) == require_callbacks(()) == []
    assert require_callbacks((bar,)) == require_callbacks([bar]) == [bar]


@pytest.mark.filterwarnings("default")
def test_tensorboard_reads_the_history_of_the_model(tmp_path):
    reading = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    history = trained(TensorBoardLogger(tmp_path / "board"))
    events = reading.EventAccumulator(str(tmp_path / "board")).Reload()
    curve = events.Scalars("training/objective")
    assert [point.step for point in curve] == list(range(1, 24))
    np.testing.assert_array_equal(
        np.float32([point.value for point in curve]),
        np.float32(history["objective"]),
    )


def test_without_tensorboard_the_message_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match=r"selfexpress\[tensorboard\]"):
        trained(TensorBoardLogger(tmp_path))


def test_the_bar_shows_steps_rate_and_time_left_on_stderr(capsys):
    trained(ProgressBar(every=5))
    captured = capsys.readouterr()
    assert captured.out == ""
    for part in ("training", "23/23", "objective", "steps/s", "left"):
        assert part in captured.err


@pytest.mark.parametrize("kind", [ProgressBar, CSVLogger, TensorBoardLogger])
def test_callbacks_can_be_copied_and_pickled_after_a_training(kind, tmp_path):
    callback = kind() if kind is ProgressBar else kind(tmp_path / "log")
    trained(callback)
    copied = pickle.loads(pickle.dumps(copy.deepcopy(callback)))
    assert copied.every == callback.every
    trained(copied)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_log_on_a_full_disk_is_named(tmp_path):
    path = tmp_path / "log.csv"
    path.symlink_to("/dev/full")
    with pytest.raises(DataError, match=f"{path} must be a file .* No space left"):
        trained(CSVLogger(path))
