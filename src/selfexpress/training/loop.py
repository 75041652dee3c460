"""The training loop: batches in, a trained network and its history out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selfexpress.config import TrainConfig
from selfexpress.data.sources import RowBlock, RowSource
from selfexpress.errors import DegenerateError
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.training.callbacks import Callback, TrainState
from selfexpress.training.objective import GRADIENT_STEPS, Objective
from selfexpress.training.optimizers import OPTIMIZERS
from selfexpress.training.sampling import PermutationSampler

RECORDED = ("objective", "reconstruction", "penalty", "learning_rate", "threshold")

# Steps between looks at the objective: each look waits for a GPU.
_CHECK_EVERY = 100


def train(
    network: SelfExpressiveNetwork,
    source: RowSource,
    config: TrainConfig,
    *,
    seed: int,
    callbacks: Sequence[Callback] = (),
) -> dict[str, NDArray[np.float64]]:
    """Train ``network`` in place to express the rows of ``source`` by one another.

    Parameters
    ----------
    network : SelfExpressiveNetwork
        On the device that ``source`` hands its rows out on.
    source : RowSource
    config : TrainConfig
        With ``algorithm`` and ``precision`` chosen, not "auto".
    seed : int
        Of the order of the rows.
    callbacks : sequence of Callback

    Returns
    -------
    dict of str to ndarray of shape (steps done,)
        The entries of ``RECORDED`` by step.

    Raises
    ------
    DegenerateError
        If the objective stops being finite.
    """
    device = network.threshold.device
    sampler = PermutationSampler(len(source), config.batch_size, seed=seed)
    optimizer = OPTIMIZERS[config.optimizer](network.parameters())
    gradient_step = GRADIENT_STEPS[config.algorithm]
    history = torch.zeros(config.max_iter, len(RECORDED), device=device)
    state = TrainState(0, config.max_iter, network, record={})

    for callback in callbacks:
        callback.on_train_begin(state)
    try:
        for step in range(config.max_iter):
            rate = learning_rate(config, step)
            batch = _batch(source, sampler.batch(step).to(device))
            network.zero_grad()
            with _precision(config, device):
                objective = gradient_step(network, batch, source, config)
            torch.nn.utils.clip_grad_norm_(network.parameters(), config.clip_norm)
            optimizer.step(rate)
            history[step] = _record(objective, config, rate, network.threshold)
            state.step = step + 1
            state.record = dict(zip(RECORDED, history[step], strict=True))
            for callback in callbacks:
                callback.on_step_end(state)
            is_last = state.should_stop or state.step == config.max_iter
            if is_last or state.step % _CHECK_EVERY == 0:
                _check_finite(state)
            if is_last:
                break
    finally:
        for callback in callbacks:
            callback.on_train_end(state)
    done = history[: state.step].double().cpu().numpy()
    return dict(zip(RECORDED, done.T, strict=True))


def learning_rate(config: TrainConfig, step: int) -> float:
    """Return the learning rate of a step; cosine falls from the full rate to 0."""
    if config.schedule == "constant":
        return config.learning_rate
    progress = step / config.max_iter
    return config.learning_rate * (1 + math.cos(math.pi * progress)) / 2


def _batch(source: RowSource, index: Tensor) -> RowBlock:
    return RowBlock(source.take(index), index)


def _precision(
    config: TrainConfig, device: torch.device
) -> AbstractContextManager[object]:
    if config.precision == "bfloat16":
        # No cache: weights cast without a graph in pass 1 must not serve pass 2.
        return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)
    return nullcontext()


def _record(
    objective: Objective, config: TrainConfig, rate: float, threshold: Tensor
) -> Tensor:
    """Return one row of the history, in the order of ``RECORDED``."""
    total = objective.total(config.gamma)
    parts = [total, objective.reconstruction, objective.penalty]
    row = [part.float() for part in parts]
    return torch.stack([*row, torch.full_like(row[0], rate), threshold.detach()])


def _check_finite(state: TrainState) -> None:
    objective = float(state.record["objective"])
    if not math.isfinite(objective):
        raise DegenerateError(
            f"The objective must stay finite, but was {objective} at step "
            f"{state.step}. Lower learning_rate, or scale X to ordinary sizes."
        )
