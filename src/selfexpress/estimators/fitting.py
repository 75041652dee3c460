"""From rows to a trained network."""

from __future__ import annotations

import copy
import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from selfexpress import distributed
from selfexpress.config import NetworkConfig, TrainConfig
from selfexpress.errors import DegenerateWarning
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.rows.sources import RowSource
from selfexpress.training.callbacks import (
    Callback,
    ProgressBar,
    TrainState,
    require_callbacks,
)
from selfexpress.training.checkpoints import Checkpoints, require_checkpoint
from selfexpress.training.choices import choose_gamma
from selfexpress.training.loop import train

History = dict[str, NDArray[np.float64]]


def trained_network(
    model: Any,
    sample: RowSource,
    network_config: NetworkConfig,
    config: TrainConfig,
    *,
    generator: torch.Generator,
    seed: int,
    device: torch.device,
) -> tuple[SelfExpressiveNetwork, History]:
    """Train a network on a model's terms; return it and its history.

    Where ``start="auto"`` chose like rows and training left no coefficient, it is
    repeated from a random start. ``model.settings_["start"]`` says which it was, and
    ``model.settings_["fall_start"]`` when an adaptive learning rate began to fall.
    """
    drawn = SelfExpressiveNetwork(
        sample.n_features, network_config, generator=generator
    )
    network = copy.deepcopy(drawn).to(device)
    history = _train(model, network, sample, config, seed=seed)
    n_batches = math.ceil(len(sample) / config.batch_size)
    is_dead = not history["penalty"][-n_batches:].any()
    if is_dead and config.start == "alike" and model.start == "auto":
        warnings.warn(
            "Training that starts from like rows should leave coefficients, but left "
            "none; it is repeated from a random start. Use start='random'.",
            DegenerateWarning,
            stacklevel=4,
        )
        config = replace(config, start="random")
        gamma = choose_gamma(
            model.gamma, model.gamma_scale, model.smallest_gamma_, config
        )
        config = replace(config, gamma=gamma)
        model.settings_ |= {"start": "random", "gamma": gamma}
        network = drawn.to(device)
        history = _train(model, network, sample, config, seed=seed, folder="random")
    return network, history


def _train(
    model: Any,
    network: SelfExpressiveNetwork,
    sample: RowSource,
    config: TrainConfig,
    *,
    seed: int,
    folder: str = "",
) -> History:
    with torch.cuda.device_of(network.threshold):
        return train(
            network,
            sample,
            config,
            seed=seed,
            callbacks=_callbacks(model, config),
            checkpoints=_checkpoints(model, folder),
        )


def _callbacks(model: Any, config: TrainConfig) -> list[Callback]:
    """Return what is called after every step: the user's callbacks, and ours."""
    callbacks = require_callbacks(model.callbacks)
    if model.verbose and distributed.is_main():
        callbacks.append(ProgressBar())
    if config.schedule == "adaptive":
        callbacks.append(_FallStart(model.settings_))
    return callbacks


class _FallStart(Callback):
    """Notes after how many steps the learning rate began to fall, if it did."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings

    def on_train_end(self, state: TrainState) -> None:
        """Note it; steps that a callback left out did not fall."""
        self._settings["fall_start"] = min(state.fall_start, state.step)


def _checkpoints(model: Any, folder: str) -> Checkpoints | None:
    """Return where the training of a model is kept, if anywhere."""
    place = require_checkpoint(model.checkpoint, model.random_state)
    return None if place is None else Checkpoints(place / folder)
