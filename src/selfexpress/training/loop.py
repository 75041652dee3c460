"""The training loop: batches in, a trained network and its history out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from selfexpress.config import TrainConfig
from selfexpress.data.sources import RowSource
from selfexpress.errors import DegenerateError
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.training.callbacks import Callback, TrainState
from selfexpress.training.graphed import GraphedStep
from selfexpress.training.steps import RECORDED, PlainStep, Step

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
        With ``algorithm``, ``precision`` and ``engine`` chosen, not "auto".
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
    history = torch.zeros(
        config.max_iter, len(RECORDED), device=network.threshold.device
    )
    plain = PlainStep(network, source, config, seed=seed, history=history)
    is_graphed = plain.device.type == "cuda" and config.engine == "fused"
    take_step: Step = plain
    if is_graphed and config.algorithm == "naive":
        take_step = GraphedStep(plain)
    state = TrainState(0, config.max_iter, network, history)

    for callback in callbacks:
        callback.on_train_begin(state)
    try:
        while state.step < config.max_iter and not state.should_stop:
            take_step(state.step)
            state.step += 1
            for callback in callbacks:
                callback.on_step_end(state)
            if state.is_last or state.step % _CHECK_EVERY == 0:
                _check_finite(state)
    finally:
        take_step.finish()
        for callback in callbacks:
            callback.on_train_end(state)
    done = history[: state.step].double().cpu().numpy()
    return dict(zip(RECORDED, done.T, strict=True))


def _check_finite(state: TrainState) -> None:
    objective = float(state.record["objective"])
    if not math.isfinite(objective):
        raise DegenerateError(
            f"The objective must stay finite, but was {objective} at step "
            f"{state.step}. Lower learning_rate, or scale X to ordinary sizes."
        )
