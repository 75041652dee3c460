"""A training that ends in the middle."""

from __future__ import annotations

from selfexpress.training.callbacks import Callback


class StopError(Exception):
    pass


class FailAt(Callback):
    """End training in the middle, as a crash would, after some step."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, state):
        if state.step == self.step:
            raise StopError
