"""Trainings that end in the middle or go wrong."""

from __future__ import annotations

from collections.abc import Callable

import torch

from selfexpress.training.callbacks import Callback, TrainState


class StopError(Exception):
    pass


class FailAt(Callback):
    """End training in the middle, as a crash would, after some step."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, state):
        if state.step == self.step:
            raise StopError


class Spoil(Callback):
    """Make the weights useless after some step, as often as asked for."""

    def __init__(
        self,
        step: int | Callable[[TrainState], int],
        value: float = float("nan"),
        times: int = 1,
    ):
        self.step, self.value, self.left = step, value, times

    def on_step_end(self, state):
        step = self.step(state) if callable(self.step) else self.step
        if state.step == step and self.left:
            self.left -= 1
            with torch.no_grad():
                state.network.threshold.fill_(self.value)
