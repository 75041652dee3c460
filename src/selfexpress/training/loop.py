"""The training loop: batches in, a trained network and its history out."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from selfexpress import distributed
from selfexpress.config import TrainConfig
from selfexpress.errors import (
    ConvergenceWarning,
    DegenerateError,
    DegenerateWarning,
    MemoryWarning,
)
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.ops.memory import is_out_of_memory
from selfexpress.rows.sources import RowSource
from selfexpress.training.callbacks import Callback, TrainState
from selfexpress.training.checkpoints import (
    Checkpoints,
    Interruption,
    Progress,
    fingerprint,
    held_back,
)
from selfexpress.training.schedule import has_settled, plan
from selfexpress.training.start import some_rows, start_alike
from selfexpress.training.step import RECORDED, GraphedStep, PlainStep

logger = logging.getLogger(__name__)

# Steps between looks at the objective: each look waits for a GPU.
_CHECK_EVERY = 100
# A batch is noisy by a factor of two or so; beyond this training has left for good.
_EXPLOSION = 1e3
_MOST_RETRIES = 2


def train(
    network: SelfExpressiveNetwork,
    source: RowSource,
    config: TrainConfig,
    *,
    seed: int,
    callbacks: Sequence[Callback] = (),
    checkpoints: Checkpoints | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Train ``network`` in place to express the rows of ``source`` by one another.

    With ``checkpoints``, an interrupted training goes on where it was: on one CPU the
    result is that of an undisturbed one, bit for bit. Ctrl-C and SIGTERM then save
    before they leave, and a training that diverges goes back to the last checkpoint
    and on from there with half the learning rate, twice at most.

    With ``schedule="adaptive"`` the objective is looked at every 100 steps; once it has
    settled, the learning rate falls to 0 and training ends: see ``training.schedule``.

    Memory that does not suffice for a step halves ``block_size``, with a warning.

    ``config`` has ``algorithm``, ``precision``, ``engine`` and ``start`` chosen, not
    "auto"; ``seed`` is that of the order of the rows. Returned are the entries of
    ``RECORDED`` by step.

    Raises
    ------
    DegenerateError
        If the objective stops being finite, or explodes.
    CheckpointError
        If ``checkpoints`` cannot be written, or are those of another training.
    """
    if config.start == "alike":
        start_alike(network, source)
    training = _Training(network, source, config, seed=seed, checkpoints=checkpoints)
    state = training.state
    with (
        held_back(is_wanted=checkpoints is not None) as interruption,
        ExitStack() as endings,
    ):
        try:
            for callback in callbacks:
                callback.on_train_begin(state)
                endings.callback(callback.on_train_end, state)
            is_leaving = state.is_last
            while not is_leaving:
                training.advance()
                for callback in callbacks:
                    callback.on_step_end(state)
                is_due = _agree(state, interruption, is_due=training.is_save_due)
                is_leaving = state.is_last or interruption.number is not None
                if is_leaving or is_due or state.step % _CHECK_EVERY == 0:
                    if problem := training.problem():
                        training.go_back(problem)
                        is_leaving = False
                    else:
                        training.look_back(is_saving=is_leaving or is_due)
        finally:
            training.release()
    done = state.history[: state.step].double().cpu().numpy()
    return dict(zip(RECORDED, done.T, strict=True))


def _agree(state: TrainState, interruption: Interruption, *, is_due: bool) -> bool:
    """Have all processes save, stop and leave after the same step.

    What one of them asks for, by a clock, a callback or a signal, all do; one that
    went on alone would wait for the others' sums for ever. Return whether a checkpoint
    is due.
    """
    if distributed.n_ranks() == 1:
        return is_due
    asked = [interruption.number or 0, int(state.should_stop), int(is_due)]
    number, should_stop, is_due = distributed.largest(torch.tensor(asked)).tolist()
    interruption.number = number or None
    state.should_stop = bool(should_stop)
    return bool(is_due)


class _Training:
    """A training that can go on with other settings where it was."""

    def __init__(
        self,
        network: SelfExpressiveNetwork,
        source: RowSource,
        config: TrainConfig,
        *,
        seed: int,
        checkpoints: Checkpoints | None,
    ) -> None:
        history = torch.zeros(
            config.max_iter, len(RECORDED), device=network.threshold.device
        )
        self.state = TrainState(0, config.max_iter, network, history)
        self._source = source
        self._config = config
        self._seed = seed
        self._checkpoints = checkpoints
        self._rate_factor = 1.0
        self._settled_at: int | None = None
        self._n_retries = 0
        self._prepare()
        if checkpoints is not None:
            same = fingerprint(network, source, config, seed=seed)
            self._resume(checkpoints.begin(same, self._plain.state(), history))

    def advance(self) -> None:
        """Take a step, with smaller blocks where memory does not suffice."""
        while True:
            try:
                self._record()
                self._step(self.state.step)
                break
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error) or not self._can_use_less:
                    raise
            # Here the error is gone, and with its frames all that was allocated.
            self._use_less_memory()
        self.state.step += 1

    @property
    def is_save_due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return self._checkpoints is not None and self._checkpoints.is_due

    def problem(self) -> str:
        """Return what is wrong with the objective, nothing if all is well."""
        state = self.state
        objective = float(state.record["objective"])
        if not math.isfinite(objective):
            return (
                f"The objective must stay finite, but was {objective} at step "
                f"{state.step}."
            )
        # Zero coefficients have an objective of about gamma / 2: more is a way to
        # start with, but not to end up at.
        usual = max(float(state.history[0, 0]), self._config.gamma / 2)
        if objective > _EXPLOSION * usual:
            return (
                f"The objective must not explode, but was {objective:.4g} at step "
                f"{state.step}, where {usual:.4g} is usual."
            )
        return ""

    def look_back(self, *, is_saving: bool) -> None:
        """Let the learning rate fall once the objective has settled; then save."""
        state = self.state
        # Not whenever a checkpoint is due: clocks must not change a training.
        is_time = state.step % _CHECK_EVERY == 0
        is_open = state.step < state.fall_start
        if self._config.schedule == "adaptive" and is_time and is_open:
            objective = state.history[: state.step, RECORDED.index("objective")]
            is_settled = has_settled(objective, zero=self._zero_objective)
            # Many processes must end together.
            if distributed.from_main(torch.tensor(int(is_settled))):
                self._settled_at = state.step
                self._follow_schedule()
                logger.info(
                    "settled at step %d, ends at %d", state.step, state.max_iter
                )
        if self._checkpoints is not None and is_saving:
            progress = Progress(
                state.step, self._rate_factor, state.is_last, self._settled_at
            )
            self._checkpoints.save(progress, self._plain.state(), state.history)

    def go_back(self, problem: str) -> None:
        """Return to the last checkpoint with half the rate, or give up."""
        advice = "Lower learning_rate, or scale X to ordinary sizes."
        if self._checkpoints is None or self._n_retries == _MOST_RETRIES:
            raise DegenerateError(f"{problem} {advice}")
        self._n_retries += 1
        progress = self._checkpoints.restore(self._plain.state(), self.state.history)
        factor = self._rate_factor / 2
        warnings.warn(
            f"{problem} Going on from step {progress.step} with {factor:g} times the "
            f"learning rate. {advice}",
            DegenerateWarning,
            stacklevel=3,
        )
        self._resume(replace(progress, rate_factor=factor, is_finished=False))

    def release(self) -> None:
        """Leave the network with parameters of its own."""
        self._plain.parameters.release()

    def _resume(self, progress: Progress) -> None:
        """Go on from where the tensors were just restored to."""
        self._plain.parameters.refresh_working()
        state = self.state
        state.step, state.should_stop = progress.step, progress.is_finished
        self._rate_factor = progress.rate_factor
        self._settled_at = progress.settled_at
        self._follow_schedule()
        if progress.is_finished and state.step < state.max_iter:
            warnings.warn(
                f"Training was ended by a callback after {state.step} of "
                f"{state.max_iter} steps, and is taken as it was left. Use another "
                "folder of checkpoints to train on.",
                ConvergenceWarning,
                stacklevel=5,
            )

    @cached_property
    def _zero_objective(self) -> float:
        """The objective of zero coefficients; rows of zeros have length 0, not 1."""
        lengths = some_rows(self._source).square().sum(dim=1)
        return self._config.gamma / 2 * float(lengths.mean())

    def _follow_schedule(self) -> None:
        """Take rates and end from the schedule, as far as it is known now."""
        schedule = plan(
            self._config, settled_at=self._settled_at, rate_factor=self._rate_factor
        )
        self._plain.schedule = schedule
        self.state.fall_start = schedule.fall_start
        self.state.max_iter = schedule.n_steps

    def _prepare(self) -> None:
        self._plain = PlainStep(
            self.state.network,
            self._source,
            self._config,
            seed=self._seed,
            history=self.state.history,
        )
        self._step: PlainStep | GraphedStep = self._plain
        self._follow_schedule()

    def _record(self) -> None:
        """Record a step that can be recorded, once; it takes its memory here."""
        if self._plain.is_replayable and self._step is self._plain:
            self._step = GraphedStep(self._plain)

    @property
    def _can_use_less(self) -> bool:
        # Alone only: the others would wait for sums of a step that starts again. Nor
        # can a step be taken again that has begun to move the network.
        is_alone = distributed.n_ranks() == 1
        return is_alone and self._config.block_size > 1 and not self._plain.is_moving

    def _use_less_memory(self) -> None:
        """Change to the algorithm of bounded memory, then halve its blocks."""
        config = self._config
        if config.algorithm == "naive":
            self._config = replace(config, algorithm="two_pass")
        else:
            largest = min(config.block_size, len(self._source))
            self._config = replace(config, block_size=max(1, largest // 2))
        warnings.warn(
            f"A training step must fit into memory, but does not; going on with "
            f"algorithm='two_pass' and block_size={self._config.block_size}. Set "
            "block_size or batch_size lower, or free memory.",
            MemoryWarning,
            stacklevel=3,
        )
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        self._rebuild()

    def _rebuild(self) -> None:
        """Make the steps anew, by changed settings, with the state they have."""
        kept = {name: x.clone() for name, x in self._plain.state().items()}
        self.release()
        self._prepare()
        for name, tensor in self._plain.state().items():
            tensor.copy_(kept[name])
        self._plain.parameters.refresh_working()
