"""Training of the image encoder without labels, resumable from its checkpoints.

Randomness is a function of (seed, step): a resumed run draws what an undisturbed one
would have drawn, and no generator state needs to be kept.

Shapes: M images, P patches of an image, B images of a step, H x W pixels.
"""

from __future__ import annotations

import hashlib
import logging
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reproduction.encoder.augment import (
    Augmentation,
    augment,
    sample_changes,
    standardise,
)
from reproduction.encoder.checkpoint import read_checkpoint, write_checkpoint
from reproduction.encoder.coding_rate import patch_loss, rate_bounds
from reproduction.encoder.lars import Lars
from reproduction.encoder.resnet import EncoderNetwork
from selfexpress.errors import (
    CheckpointError,
    ConfigError,
    DegenerateError,
    DegenerateWarning,
)

logger = logging.getLogger(__name__)

# Streams of random numbers that must not repeat each other.
INITIALISATION, ORDER, PATCHES = 0, 1, 2
# Untrained features may look collapsed: judge them after this part of the run, by how
# far the coding rate stands between full collapse (0) and the largest possible (1).
_JUDGED_AFTER = 0.1
_LEAST_SPREAD = 0.02

Row = dict[str, float]


@dataclass(frozen=True)
class TrainingSettings:
    """What governs the training of an encoder; see `CodingRateEncoder`."""

    n_patches: int = 20
    batch_size: int = 100
    n_epochs: int | None = 30
    max_seconds: float | None = None
    learning_rate: float = 0.3
    momentum: float = 0.9
    weight_decay: float = 1e-4
    warmup: float = 0.02
    invariance: float = 200.0
    distortion: float = 0.2
    patch_size: int = 32
    augmentation: Augmentation = field(default_factory=Augmentation)
    mixed_precision: bool = False
    log_interval: int = 50
    checkpoint: Path | None = None
    checkpoint_seconds: float = 120.0

    def __post_init__(self) -> None:
        """Refuse values out of their range."""
        for name in ("n_patches", "batch_size", "log_interval"):
            _require(name, getattr(self, name), minimum=1, advice="Use an integer >= 1")
        _require("patch_size", self.patch_size, minimum=8, advice="32 is usual")
        if self.n_epochs is not None:
            _require("n_epochs", self.n_epochs, minimum=1, advice="30 is usual")
        for name in ("learning_rate", "invariance", "distortion", "max_seconds"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(
                    f"{name} must be positive, got {value!r}. "
                    f"The default is {TrainingSettings.__dict__[name]}."
                )
        if self.n_epochs is None and self.max_seconds is None:
            raise ConfigError(
                "n_epochs or max_seconds must be given, got None for both. "
                "30 epochs are the published length."
            )
        if not 0 < self.augmentation.crop_area <= 1:
            raise ConfigError(
                f"crop_area must lie in (0, 1], got {self.augmentation.crop_area!r}. "
                "0.25 is the published value."
            )

    def progress(self, step: int, seconds: float, n_images: int) -> float:
        """Return how much of the run is over, from 0 to 1 or a little beyond."""
        by_steps = by_time = 0.0
        if self.n_epochs is not None:
            by_steps = step / max(1, self.n_epochs * self.steps_per_epoch(n_images))
        if self.max_seconds is not None:
            by_time = seconds / self.max_seconds
        return max(by_steps, by_time)

    def rate_at(self, progress: float) -> float:
        """Return the learning rate: a linear rise, then half a cosine to zero."""
        if progress < self.warmup:
            return self.learning_rate * progress / self.warmup
        over = (progress - self.warmup) / (1 - self.warmup)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * over))

    def steps_per_epoch(self, n_images: int) -> int:
        """Return the number of full batches in one walk through the images."""
        return max(1, n_images // self.batch_size)

    def fingerprint(self) -> dict[str, Any]:
        """Return what must not change between a checkpoint and its resumption."""
        settings = asdict(self)
        for name in ("max_seconds", "checkpoint", "checkpoint_seconds"):
            del settings[name]
        return settings


@dataclass
class TrainingState:
    """Where a run stands.

    Attributes
    ----------
    step : int
        Steps done.
    seconds : float
        Time spent, over all parts of an interrupted run.
    history : list of dict
        One row per log line: step, seconds, loss, rate, discrepancy, learning_rate.
    """

    step: int = 0
    seconds: float = 0.0
    history: list[Row] = field(default_factory=list)


def train_network(
    network: EncoderNetwork,
    images: Tensor,
    *,
    settings: TrainingSettings,
    seed: int,
    on_log: Callable[[Row], None] | None = None,
) -> TrainingState:
    """Train ``network`` in place on unlabelled images.

    Parameters
    ----------
    network : EncoderNetwork
        On the device of ``images``.
    images : Tensor of shape (M, 3, H, W), uint8
        Stays where it is; patches are cut and changed there.
    settings : TrainingSettings
        If ``settings.checkpoint`` exists, the run goes on from there.
    seed : int
    on_log : callable, optional
        Called with every row of the history as it is made.

    Raises
    ------
    DegenerateError
        If the loss is no longer a finite number.
    CheckpointError
        If the checkpoint belongs to other settings or images.
    """
    run = _Run(network, images, settings, seed)
    with _fastest_convolutions():
        run.train(on_log)
    return run.state


def stream_generator(
    seed: int, stream: int, index: int, *, device: torch.device | str = "cpu"
) -> torch.Generator:
    """Return a generator that depends on its arguments and on nothing else."""
    word = np.random.SeedSequence([seed, stream, index]).generate_state(1, np.uint64)[0]
    return torch.Generator(device=device).manual_seed(int(word) >> 1)


@contextmanager
def _fastest_convolutions() -> Iterator[None]:
    """Let cuDNN try its convolution algorithms once and keep the fastest."""
    # Not cudnn.flags(benchmark=True), which switches cuDNN off unless told otherwise.
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


class _Run:
    """One training run: its tensors, its clock and its files."""

    def __init__(
        self,
        network: EncoderNetwork,
        images: Tensor,
        settings: TrainingSettings,
        seed: int,
    ) -> None:
        self.network = network
        self.images = images
        self.settings = settings
        self.seed = seed
        self.batch_size = min(settings.batch_size, len(images))
        self.optimizer = Lars(
            network.parameters(),
            settings.learning_rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
        )
        self.state = TrainingState()
        self._order = torch.empty(0, dtype=torch.int64)
        self._order_epoch = -1

    def train(self, on_log: Callable[[Row], None] | None) -> None:
        """Step until the run is over, logging and saving on the way."""
        settings, state = self.settings, self.state
        self._restore()
        started = time.perf_counter() - state.seconds
        saved = state.seconds
        pending: list[Tensor] = []  # losses still on the device
        self.network.train()
        while (progress := self._progress()) < 1:
            self.optimizer.learning_rate = settings.rate_at(progress)
            pending.append(self._step())
            state.step += 1
            state.seconds = time.perf_counter() - started
            is_due = state.seconds - saved >= self._checkpoint_interval()
            is_line = state.step % settings.log_interval == 0
            if is_line or is_due or self._progress() >= 1:
                self._log(pending, on_log)
                pending = []
            if is_due:
                self._save()
                saved = state.seconds

    def _checkpoint_interval(self) -> float:
        settings = self.settings
        return math.inf if settings.checkpoint is None else settings.checkpoint_seconds

    def _progress(self) -> float:
        return self.settings.progress(
            self.state.step, self.state.seconds, len(self.images)
        )

    def _step(self) -> Tensor:
        """Take one step; return total, rate, discrepancy without waiting for them."""
        settings, images = self.settings, self.images
        patches = self._patches()
        with torch.autocast(
            images.device.type, torch.bfloat16, enabled=settings.mixed_precision
        ):
            projections = self.network(patches)
        # Outside the autocast: a log-determinant does not survive bfloat16.
        loss = patch_loss(
            projections.unflatten(0, (settings.n_patches, self.batch_size)),
            invariance=settings.invariance,
            distortion=settings.distortion,
        )
        self.optimizer.zero_grad(set_to_none=True)
        loss.total.backward()
        self.optimizer.step()
        return torch.stack([loss.total, loss.rate, loss.discrepancy]).detach()

    @torch.no_grad()
    def _patches(self) -> Tensor:
        """Return this step's patches, (P * B, 3, S, S): all first ones, all second."""
        settings = self.settings
        batch = self.images[self._batch_index()].float().div_(255)
        changes = sample_changes(
            settings.n_patches * self.batch_size,
            (batch.shape[2], batch.shape[3]),
            augmentation=settings.augmentation,
            generator=self._generator(PATCHES, self.state.step),
        )
        copies = batch.repeat(settings.n_patches, 1, 1, 1)
        return standardise(augment(copies, changes, settings.patch_size))

    def _batch_index(self) -> Tensor:
        """Return the positions of this step's images in the epoch's random order."""
        n_images = len(self.images)
        epoch, place = divmod(self.state.step, self.settings.steps_per_epoch(n_images))
        if epoch != self._order_epoch:
            generator = self._generator(ORDER, epoch)
            self._order = torch.randperm(
                n_images, generator=generator, device=self.images.device
            )
            self._order_epoch = epoch
        start = place * self.batch_size
        return self._order[start : start + self.batch_size]

    def _generator(self, stream: int, index: int) -> torch.Generator:
        return stream_generator(self.seed, stream, index, device=self.images.device)

    def _log(self, pending: list[Tensor], on_log: Callable[[Row], None] | None) -> None:
        """Fetch the losses since the last line, judge them and keep their means."""
        loss, rate, discrepancy = torch.stack(pending).mean(dim=0).tolist()
        state = self.state
        row = {
            "step": state.step,
            "seconds": state.seconds,
            "loss": loss,
            "rate": rate,
            "discrepancy": discrepancy,
            "learning_rate": self.optimizer.learning_rate,
        }
        state.history.append(row)
        logger.info(
            "step %d, %.0f s: loss %.2f, coding rate %.2f, discrepancy %.4f",
            *(state.step, state.seconds, loss, rate, discrepancy),
        )
        self._judge(row)
        if on_log is not None:
            on_log(row)

    def _judge(self, row: Row) -> None:
        """Stop on a loss that is no number, warn of features that coincide."""
        settings = self.settings
        if not math.isfinite(row["loss"]):
            raise DegenerateError(
                f"The loss must be finite, but became {row['loss']} at step "
                f"{self.state.step}. Lower learning_rate, {settings.learning_rate} now."
            )
        n_projection = self.network.architecture.n_projection
        collapsed, largest = rate_bounds(
            self.batch_size, n_projection, settings.distortion
        )
        spread = (row["rate"] - collapsed) / max(largest - collapsed, 1e-12)
        if self._progress() > _JUDGED_AFTER and spread < _LEAST_SPREAD:
            warnings.warn(
                f"The features should spread, but their coding rate of "
                f"{row['rate']:.2f} is close to {collapsed:.2f}, that of features "
                f"that all coincide. Lower invariance, {settings.invariance} now.",
                DegenerateWarning,
                stacklevel=2,
            )

    def _save(self) -> None:
        path = self.settings.checkpoint
        assert path is not None, "no checkpoint is due without a path"
        tensors = {f"network.{k}": v for k, v in self.network.state_dict().items()}
        for number, velocity in enumerate(self.optimizer.velocities):
            tensors[f"velocity.{number}"] = velocity
        metadata = {**asdict(self.state), "fingerprint": self._fingerprint()}
        write_checkpoint(path, tensors, metadata)
        logger.info("checkpoint of step %d written to %s", self.state.step, path)

    def _restore(self) -> None:
        """Take the run up where the checkpoint, if there is one, has left it."""
        path = self.settings.checkpoint
        if path is None or not path.exists():
            return
        tensors, metadata = read_checkpoint(path)
        found, expected = metadata["fingerprint"], self._fingerprint()
        if found != expected:
            raise CheckpointError(
                f"A checkpoint must come from the same settings, seed and images, but "
                f"{path} differs in {', '.join(_differing(found, expected))}. "
                "Delete it to train from the start."
            )
        prefix = "network."
        weights = {
            k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)
        }
        self.network.load_state_dict(weights)
        for number, velocity in enumerate(self.optimizer.velocities):
            velocity.copy_(tensors[f"velocity.{number}"])
        self.state.step = metadata["step"]
        self.state.seconds = metadata["seconds"]
        self.state.history.extend(metadata["history"])
        logger.info("resumed at step %d from %s", self.state.step, path)

    def _fingerprint(self) -> dict[str, Any]:
        architecture = asdict(self.network.architecture)
        architecture["n_blocks"] = list(architecture["n_blocks"])
        return {
            **self.settings.fingerprint(),
            "architecture": architecture,
            "seed": self.seed,
            "images": [*self.images.shape, self._digest],
        }

    @cached_property
    def _digest(self) -> str:
        content = self.images.cpu().contiguous().numpy().data
        return hashlib.sha256(content).hexdigest()[:16]


def _differing(found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    names = sorted(found.keys() | expected.keys())
    return [name for name in names if found.get(name) != expected.get(name)]


def _require(name: str, value: object, *, minimum: int, advice: str) -> None:
    """Refuse anything but an integer of at least ``minimum``."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or value < minimum:  # type: ignore[operator]
        raise ConfigError(
            f"{name} must be an integer of at least {minimum}, got {value!r}. {advice}."
        )
