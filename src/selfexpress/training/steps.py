"""One training step: batch, gradient, clipping, optimiser, record."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor

from selfexpress.config import TrainConfig
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.ops.clipping import clipping_scale
from selfexpress.ops.memory import free_bytes
from selfexpress.ops.precision import float32_products
from selfexpress.rows.sources import RowBlock, RowSource
from selfexpress.training.fused import FusedGradient
from selfexpress.training.objective import GRADIENT_STEPS, Objective
from selfexpress.training.optimizers import OPTIMIZERS
from selfexpress.training.parameters import ALIGNMENT, FlatParameters
from selfexpress.training.sampling import PermutationSampler
from selfexpress.training.schedule import Schedule, plan
from selfexpress.training.streams import SideStream

RECORDED = ("objective", "reconstruction", "penalty", "learning_rate", "threshold")


class Step(Protocol):
    """What the loop asks of a step."""

    def __call__(self, step: int) -> None:
        """Take step number ``step`` and write its record into the history."""
        ...

    def follow(self, schedule: Schedule) -> None:
        """Take the rates of the steps to come from another schedule."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that steps change: to save, or to write saved ones to."""
        ...

    def finish(self) -> None:
        """Leave the network with parameters of its own."""
        ...


class PlainStep:
    """A step, one operation after the other.

    Parameters
    ----------
    network : SelfExpressiveNetwork
    source : RowSource
    config : TrainConfig
        With ``algorithm``, ``precision`` and ``engine`` chosen, not "auto".
    seed : int
        Of the order of the rows.
    history : Tensor of shape (max_iter, len(RECORDED))
        On the device of the network; a row is written by each step.
    """

    def __init__(
        self,
        network: SelfExpressiveNetwork,
        source: RowSource,
        config: TrainConfig,
        *,
        seed: int,
        history: Tensor,
    ) -> None:
        self.network = network
        self.config = config
        self.schedule = plan(config)
        self.history = history
        self.device = network.threshold.device
        self.sampler = PermutationSampler(len(source), config.batch_size, seed=seed)
        self.parameters = _flat_parameters(network, config)
        self.optimizer = OPTIMIZERS[config.optimizer](self.parameters)
        self.source = source
        self.is_moving = False  # stays true if the network is left half moved
        self._side = SideStream(self.device)
        self._fused: FusedGradient | None = None
        if config.engine == "fused":
            self._fused = FusedGradient(network, self.parameters, config)
            in_memory = config.algorithm == "naive" or _fits(source, self.device)
            self.source = self._fused.prepare(source, in_memory=in_memory)

    @property
    def is_replayable(self) -> bool:
        """Whether a step can be recorded as a CUDA graph."""
        return self._fused is not None and self._fused.is_replayable

    def __call__(self, step: int) -> None:
        """Take one step."""
        rate = torch.tensor(self.schedule.rate(step), device=self.device)
        index = self.sampler.batch(step).to(self.device)
        found = self.find_gradient(index)
        self.history[step] = self.record(found, rate)
        self.is_moving = True
        self.move(rate)
        self.is_moving = False

    def follow(self, schedule: Schedule) -> None:
        """Take the rates of the steps to come from another schedule."""
        self.schedule = schedule

    def find_gradient(self, index: Tensor) -> tuple[Objective, Tensor]:
        """Find the gradient for the rows at ``index``.

        Returns
        -------
        tuple of Objective and Tensor
            The objective of these rows, and the threshold it was found with.
        """
        with self._side:
            threshold = self.network.threshold.detach().clone()
        batch = RowBlock(self.source.take(index), index)
        with self._products():
            objective = self._gradient(batch)
        self._side.join()
        return objective, threshold

    def record(self, found: tuple[Objective, Tensor], rate: Tensor) -> Tensor:
        """Return one row of the history, in the order of ``RECORDED``."""
        objective, threshold = found
        total = objective.total(self.config.gamma)
        parts = [total, objective.reconstruction, objective.penalty, rate, threshold]
        return torch.stack([part.detach().float() for part in parts])

    def move(self, rate: Tensor) -> None:
        """Change the network against the gradient found."""
        scale = clipping_scale(self.parameters.gradients, self.config.clip_norm)
        self.optimizer.step(rate, scale)

    def state(self) -> dict[str, Tensor]:
        """Return parameters and the optimiser's state, padding included."""
        return {"values": self.parameters.values, **self.optimizer.state()}

    def finish(self) -> None:
        """Leave the network with parameters of its own."""
        self.parameters.release()

    def _products(self) -> AbstractContextManager[None]:
        """Return the context of float32 products: as set for torch, or with tf32."""
        is_tf32 = self.config.precision == "tf32"
        return float32_products("high") if is_tf32 else nullcontext()

    def _gradient(self, batch: RowBlock) -> Objective:
        if self._fused is not None:
            return self._fused.gradient(batch, self.source)
        self.parameters.gradients.zero_()
        gradient_step = GRADIENT_STEPS[self.config.algorithm]
        with autocast(self.config, self.device):
            return gradient_step(self.network, batch, self.source, self.config)


def autocast(
    config: TrainConfig, device: torch.device
) -> AbstractContextManager[object]:
    """Return the context in which torch casts factors to bfloat16, where chosen."""
    if config.precision == "bfloat16":
        # No cache: weights cast without a graph in pass 1 must not serve pass 2.
        return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)
    return nullcontext()


def _fits(source: RowSource, device: torch.device) -> bool:
    """Return whether another copy of all rows takes little of the free memory."""
    return 4 * len(source) * source.n_features < free_bytes(device) / 8


def _flat_parameters(
    network: SelfExpressiveNetwork, config: TrainConfig
) -> FlatParameters:
    if config.engine != "fused":
        return FlatParameters(network, network.threshold.dtype)
    dtype = network.threshold.dtype
    if config.precision == "bfloat16":
        dtype = torch.bfloat16
    # Gradients that are added up block by block need more digits than they have.
    is_sum = config.algorithm == "two_pass"
    return FlatParameters(
        network,
        dtype,
        gradient_dtype=network.threshold.dtype if is_sum else dtype,
        alignment=ALIGNMENT,
    )
