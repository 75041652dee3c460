"""The training loop: batches in, a trained network and its history out."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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
    Standing,
    fingerprint,
    held_back,
)
from selfexpress.training.schedule import Schedule, has_settled, plan
from selfexpress.training.start import some_rows, start_alike
from selfexpress.training.step import RECORDED, GraphedStep, PlainStep, Step

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

    Parameters
    ----------
    network : SelfExpressiveNetwork
        On the device that ``source`` hands its rows out on.
    source : RowSource
    config : TrainConfig
        With ``algorithm``, ``precision``, ``engine`` and ``start`` chosen, not "auto".
    seed : int
        Of the order of the rows.
    callbacks : sequence of Callback
    checkpoints : Checkpoints, optional

    Returns
    -------
    dict of str to ndarray of shape (steps done,)
        The entries of ``RECORDED`` by step.

    Raises
    ------
    DegenerateError
        If the objective stops being finite, or explodes.
    CheckpointError
        If ``checkpoints`` cannot be written, or are those of another training.
    """
    if config.start == "alike":
        start_alike(network, source)
    history = torch.zeros(
        config.max_iter, len(RECORDED), device=network.threshold.device
    )
    steps = _Steps(network, source, config, seed=seed, history=history)
    state = TrainState(0, config.max_iter, network, history)
    steps.follow_schedule(state)
    if checkpoints is not None:
        same = fingerprint(network, source, config, seed=seed)
        steps.take_up(state, checkpoints.begin(same, steps.tensors, history))

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
                steps.advance(state, callbacks)
                is_due = checkpoints is not None and checkpoints.is_due
                is_due = _agree(state, interruption, is_due=is_due)
                is_leaving = state.is_last or interruption.number is not None
                if is_leaving or is_due or state.step % _CHECK_EVERY == 0:
                    problem = _problem(state, config)
                    if problem:
                        steps.go_back(state, checkpoints, problem)
                        is_leaving = False
                        continue
                    steps.look_back(state)
                    if checkpoints is not None and (is_leaving or is_due):
                        standing = steps.standing(state)
                        checkpoints.save(standing, steps.tensors, history)
        finally:
            steps.finish()
    done = history[: state.step].double().cpu().numpy()
    return dict(zip(RECORDED, done.T, strict=True))


def _agree(state: TrainState, interruption: Interruption, *, is_due: bool) -> bool:
    """Have all processes save, stop and leave after the same step.

    What one of them asks for, by a clock, a callback or a signal, all do; one that
    went on alone would wait for the others' sums for ever.

    Returns
    -------
    bool
        Whether a checkpoint is due.
    """
    if distributed.n_ranks() == 1:
        return is_due
    asked = [interruption.number or 0, int(state.should_stop), int(is_due)]
    number, should_stop, is_due = distributed.largest(torch.tensor(asked)).tolist()
    interruption.number = number or None
    state.should_stop = bool(should_stop)
    return bool(is_due)


class _Steps:
    """Steps that can go on with other settings where they were."""

    def __init__(
        self,
        network: SelfExpressiveNetwork,
        source: RowSource,
        config: TrainConfig,
        *,
        seed: int,
        history: Tensor,
    ) -> None:
        self._network = network
        self._source = source
        self._config = config
        self._seed = seed
        self._history = history
        self._rate_factor = 1.0
        self._settled_at: int | None = None
        self._n_retries = 0
        self._prepare()

    @property
    def tensors(self) -> dict[str, Tensor]:
        """What steps change."""
        return self._step.state()

    def standing(self, state: TrainState) -> Standing:
        """Return where training stands, to be saved."""
        return Standing(state.step, self._rate_factor, state.is_last, self._settled_at)

    def follow_schedule(self, state: TrainState) -> None:
        """Take rates and end from the schedule, as far as it is known now."""
        schedule = self._schedule
        self._step.follow(schedule)
        state.fall_start, state.max_iter = schedule.fall_start, schedule.n_steps

    def look_back(self, state: TrainState) -> None:
        """Let the learning rate fall once the objective has settled."""
        is_open = state.step < self._schedule.fall_start
        # Not whenever a checkpoint is due: clocks must not change a training.
        is_time = state.step % _CHECK_EVERY == 0
        if self._config.schedule != "adaptive" or not (is_open and is_time):
            return
        objective = self._history[: state.step, RECORDED.index("objective")]
        is_settled = has_settled(objective, zero=self._zero_objective)
        # Many processes must end together.
        if distributed.from_main(torch.tensor(int(is_settled))):
            self._settled_at = state.step
            self.follow_schedule(state)
            logger.info("settled at step %d, ends at %d", state.step, state.max_iter)

    def advance(self, state: TrainState, callbacks: Sequence[Callback]) -> None:
        """Take a step, with smaller blocks where memory does not suffice, and tell."""
        while True:
            try:
                self._record()
                self._step(state.step)
                break
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error) or not self._can_use_less:
                    raise
            # Here the error is gone, and with its frames all that was allocated.
            self._use_less_memory()
        state.step += 1
        for callback in callbacks:
            callback.on_step_end(state)

    def take_up(self, state: TrainState, standing: Standing) -> None:
        """Go on from where the tensors were just restored to."""
        self._plain.parameters.refresh_working()
        state.step = standing.step
        state.should_stop = standing.is_finished
        self._rate_factor = standing.rate_factor
        self._settled_at = standing.settled_at
        self.follow_schedule(state)
        if standing.is_finished and state.step < state.max_iter:
            warnings.warn(
                f"Training was ended by a callback after {state.step} of "
                f"{state.max_iter} steps, and is taken as it was left. Use another "
                "folder of checkpoints to train on.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def go_back(
        self, state: TrainState, checkpoints: Checkpoints | None, problem: str
    ) -> None:
        """Return to the last checkpoint with half the rate, or give up."""
        advice = "Lower learning_rate, or scale X to ordinary sizes."
        if checkpoints is None or self._n_retries == _MOST_RETRIES:
            raise DegenerateError(f"{problem} {advice}")
        self._n_retries += 1
        standing = checkpoints.restore(self.tensors, self._history)
        factor = self._rate_factor / 2
        warnings.warn(
            f"{problem} Going on from step {standing.step} with {factor:g} times the "
            f"learning rate. {advice}",
            DegenerateWarning,
            stacklevel=3,
        )
        self.take_up(state, replace(standing, rate_factor=factor, is_finished=False))

    def finish(self) -> None:
        """Leave the network with parameters of its own."""
        self._step.finish()

    @cached_property
    def _zero_objective(self) -> float:
        """The objective of zero coefficients; rows of zeros have length 0, not 1."""
        lengths = some_rows(self._source).square().sum(dim=1)
        return self._config.gamma / 2 * float(lengths.mean())

    @property
    def _schedule(self) -> Schedule:
        return plan(
            self._config, settled_at=self._settled_at, rate_factor=self._rate_factor
        )

    def _prepare(self) -> None:
        self._plain = PlainStep(
            self._network,
            self._source,
            self._config,
            seed=self._seed,
            history=self._history,
        )
        self._step: Step = self._plain
        self._step.follow(self._schedule)

    def _record(self) -> None:
        """Record a step that can be recorded, once; it takes its memory here."""
        if self._plain.is_replayable and self._step is self._plain:
            self._step = GraphedStep(self._plain)

    def _rebuild(self) -> None:
        """Make the steps anew, by changed settings, with the state they have."""
        kept = {name: tensor.clone() for name, tensor in self.tensors.items()}
        self._step.finish()
        self._prepare()
        _overwrite(self.tensors, kept)
        self._plain.parameters.refresh_working()

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


def _overwrite(tensors: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        tensor.copy_(values[name])


def _problem(state: TrainState, config: TrainConfig) -> str:
    """Return what is wrong with the objective, nothing if all is well."""
    objective = float(state.record["objective"])
    if not math.isfinite(objective):
        return (
            f"The objective must stay finite, but was {objective} at step {state.step}."
        )
    # Zero coefficients have an objective of about gamma / 2: more is a way to start
    # with, but not to end up at.
    usual = max(float(state.history[0, 0]), config.gamma / 2)
    if objective > _EXPLOSION * usual:
        return (
            f"The objective must not explode, but was {objective:.4g} at step "
            f"{state.step}, where {usual:.4g} is usual."
        )
    return ""
