"""The learning rate of every step, and the rule that says when it falls.

Every schedule is a full rate, then a fall to 0 as half a cosine. "cosine" falls from
the first step on, "constant" never, and "adaptive" when the objective has settled: the
fall then takes a third of the steps done so far, and ends the training. Where it does
not settle, the fall begins in time to end with the last step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from selfexpress.config import TrainConfig

# Share of the steps at the full rate; that of "adaptive" holds wherever it ends.
_FULL_SHARES = {"cosine": 0.0, "constant": 1.0, "adaptive": 0.75}
# Share of the steps done that the mean objective is taken of.
_WINDOW = 0.2
# Fewer steps say too little: batches are noisy, and the first ones find their way.
_FEWEST_STEPS = 300
# A fall below this share of the objective from one window to the next is none ...
_TOLERANCE = 0.02
# ... if even so many standard errors more would be.
_ERRORS = 2.0
# From this share of the objective of zero coefficients on, training has not begun.
_PLATEAU = 0.95


@dataclass(frozen=True)
class Schedule:
    """The learning rate by step: full, then falling to 0 as half a cosine.

    The fall begins after ``fall_start`` steps and ends with step ``n_steps``.
    """

    full_rate: float
    fall_start: int
    n_steps: int

    def rate(self, step: int) -> float:
        """Return the rate of a step, which counts from 0."""
        if step < self.fall_start:
            return self.full_rate
        progress = (step - self.fall_start) / (self.n_steps - self.fall_start)
        return self.full_rate * (1 + math.cos(math.pi * progress)) / 2


def plan(
    config: TrainConfig, *, settled_at: int | None = None, rate_factor: float = 1.0
) -> Schedule:
    """Return the schedule of a training, as far as it is known.

    The objective had settled after ``settled_at`` steps, if it has; ``rate_factor``
    multiplies the learning rate.
    """
    rate, share = config.learning_rate * rate_factor, _FULL_SHARES[config.schedule]
    if settled_at is None or config.schedule != "adaptive":
        return Schedule(rate, math.ceil(share * config.max_iter), config.max_iter)
    n_steps = math.ceil(settled_at / share)
    return Schedule(rate, settled_at, min(n_steps, config.max_iter))


def has_settled(objective: Tensor, *, zero: float) -> bool:
    """Say whether the objective has stopped to fall.

    Its mean over the last fifth of all steps is compared with that over the fifth
    before: the fall and twice its standard error must stay below 2 %. A training that
    starts at random first stays where all coefficients are small; that does not count.
    ``zero`` is the objective of zero coefficients.
    """
    n_steps = len(objective)
    if n_steps < _FEWEST_STEPS:
        return False
    size = int(_WINDOW * n_steps)
    windows = objective[-2 * size :].double().cpu().view(2, size)
    before, latest = map(float, windows.mean(dim=1))
    error = math.sqrt(float(windows.var(dim=1).sum()) / size)
    # A rise is no fall below 0: that would make up for an error of its own.
    fall = max(before - latest, 0.0) + _ERRORS * error
    return fall < _TOLERANCE * latest and latest < _PLATEAU * zero
