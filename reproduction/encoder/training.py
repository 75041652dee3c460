"""Training of the image encoder without labels, and the features that it gives.

A residual network is trained so that features of different images spread (a large
coding rate) while patches of one image agree: EMP-SSL (Tong, Chen, Ma, LeCun 2023), a
fast relative of MCR2 (Yu, Chan, You, Song, Ma 2020), whose features lie near a union of
subspaces. Features are a layer's output, averaged over a grid of patches and their
mirror images, centred, reduced to the leading principal axes of the training images,
and scaled to unit norm.

All randomness is a function of the seed and the step.

Shapes: M images, P patches of an image, B images of a step, V views of an image, H x W
pixels, D dimensions of a layer, K of the features.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import scipy.linalg
import torch
import torch.nn.functional as F
from torch import Tensor

from reproduction.encoder.augment import (
    Augmentation,
    Crop,
    augment,
    crop_side,
    cut_patches,
    sample_changes,
    standardise,
)
from reproduction.encoder.lars import Lars
from reproduction.encoder.network import (
    Architecture,
    EncoderNetwork,
    build_network,
    patch_loss,
    rate_bounds,
)
from selfexpress.errors import DegenerateError, DegenerateWarning

# Streams of random numbers that must not repeat each other.
INITIALISATION, ORDER, PATCHES = 0, 1, 2
# Untrained features may look collapsed: judge them after this part of the run, by how
# far the coding rate stands between full collapse (0) and the largest possible (1).
_JUDGED_AFTER = 0.1
_LEAST_SPREAD = 0.02
# Patches that go through the network together.
_PATCHES_AT_ONCE = {"cuda": 8192, "cpu": 512}

Row = dict[str, float]


@dataclass(frozen=True)
class TrainingSettings:
    """What governs a training."""

    # Patches of an image, and images, of a step.
    n_patches: int = 20
    batch_size: int = 100
    n_epochs: int | None = None
    # The learning rate follows the clock then, so that the schedule is complete
    # whatever the machine's speed.
    max_seconds: float | None = None
    # Of LARS; the rate rises over the first part ``warmup`` of the run, then follows
    # half a cosine to zero.
    learning_rate: float = 0.3
    momentum: float = 0.9
    weight_decay: float = 1e-4
    warmup: float = 0.02
    # Weight of the agreement between patches against the coding rate.
    invariance: float = 200.0
    # Squared precision up to which features are coded.
    distortion: float = 0.2
    # Side in pixels to which patches are resized.
    patch_size: int = 32
    augmentation: Augmentation = field(default_factory=Augmentation)
    # Steps between two rows of the history.
    log_interval: int = 50

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


def stream_generator(
    seed: int, stream: int, index: int, *, device: torch.device | str = "cpu"
) -> torch.Generator:
    """Return a generator that depends on its arguments and on nothing else."""
    word = np.random.SeedSequence([seed, stream, index]).generate_state(1, np.uint64)[0]
    return torch.Generator(device=device).manual_seed(int(word) >> 1)


class Training:
    """One run: its network, its clock and its history.

    Images are of shape (M, 3, H, W), uint8, and stay where they are; the network is
    trained there, on a GPU in bfloat16.
    """

    def __init__(
        self,
        images: Tensor,
        settings: TrainingSettings,
        architecture: Architecture,
        *,
        seed: int,
    ) -> None:
        generator = stream_generator(seed, INITIALISATION, 0)
        self.network = build_network(architecture, generator).to(images.device)
        self.images, self.settings, self.seed = images, settings, seed
        self.batch_size = min(settings.batch_size, len(images))
        self.optimizer = Lars(
            self.network.parameters(),
            settings.learning_rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
        )
        self.step, self.seconds = 0, 0.0
        self.history: list[Row] = []
        self._order = torch.empty(0, dtype=torch.int64)
        self._order_epoch = -1

    def run(self, on_log: Callable[[Row], None] = lambda _: None) -> EncoderNetwork:
        """Train to the end, calling ``on_log`` with every row of the history."""
        started = time.perf_counter()
        pending: list[Tensor] = []  # losses still on the device
        self.network.train()
        # cuDNN tries its convolution algorithms once and keeps the fastest.
        with torch.backends.cudnn.flags(enabled=True, benchmark=True):
            while (progress := self._progress()) < 1:
                self.optimizer.learning_rate = self.settings.rate_at(progress)
                pending.append(self._advance())
                self.step += 1
                self.seconds = time.perf_counter() - started
                is_line = self.step % self.settings.log_interval == 0
                if is_line or self._progress() >= 1:
                    on_log(self._log(pending))
                    pending = []
        return self.network.eval()

    def _progress(self) -> float:
        return self.settings.progress(self.step, self.seconds, len(self.images))

    def _advance(self) -> Tensor:
        """Take one step; return total, rate, discrepancy without waiting for them."""
        settings, device = self.settings, self.images.device
        patches = self.patches()
        with _mixed(device):
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
    def patches(self) -> Tensor:
        """Return this step's patches, (P * B, 3, S, S): all first ones, all second."""
        settings = self.settings
        batch = self.images[self.batch_index()].float().div_(255)
        changes = sample_changes(
            settings.n_patches * self.batch_size,
            (batch.shape[2], batch.shape[3]),
            augmentation=settings.augmentation,
            generator=self._generator(PATCHES, self.step),
        )
        copies = batch.repeat(settings.n_patches, 1, 1, 1)
        return standardise(augment(copies, changes, settings.patch_size))

    def batch_index(self) -> Tensor:
        """Return the positions of this step's images in the epoch's random order."""
        n_images = len(self.images)
        epoch, place = divmod(self.step, self.settings.steps_per_epoch(n_images))
        if epoch != self._order_epoch:
            self._order = torch.randperm(
                n_images,
                generator=self._generator(ORDER, epoch),
                device=self.images.device,
            )
            self._order_epoch = epoch
        start = place * self.batch_size
        return self._order[start : start + self.batch_size]

    def _generator(self, stream: int, index: int) -> torch.Generator:
        return stream_generator(self.seed, stream, index, device=self.images.device)

    def _log(self, pending: list[Tensor]) -> Row:
        """Fetch the losses since the last row, keep their means and judge them."""
        loss, rate, discrepancy = torch.stack(pending).mean(dim=0).tolist()
        row = {
            "step": self.step,
            "seconds": self.seconds,
            "loss": loss,
            "rate": rate,
            "discrepancy": discrepancy,
            "learning_rate": self.optimizer.learning_rate,
        }
        self.history.append(row)
        settings = self.settings
        if not math.isfinite(loss):
            raise DegenerateError(
                f"The loss must be finite, but became {loss} at step {self.step}. "
                f"Lower learning_rate, {settings.learning_rate} now."
            )
        n_projection = self.network.architecture.n_projection
        least, most = rate_bounds(self.batch_size, n_projection, settings.distortion)
        spread = (rate - least) / max(most - least, 1e-12)
        if self._progress() > _JUDGED_AFTER and spread < _LEAST_SPREAD:
            warnings.warn(
                f"The features should spread, but their coding rate of {rate:.2f} is "
                f"close to {least:.2f}, that of features that all coincide. Lower "
                f"invariance, {settings.invariance} now.",
                DegenerateWarning,
                stacklevel=2,
            )
        return row


def _mixed(device: torch.device) -> torch.autocast:
    is_gpu = device.type == "cuda"
    return torch.autocast(device.type, torch.bfloat16, enabled=is_gpu)


def layer_averages(
    network: EncoderNetwork,
    images: Tensor,
    layers: tuple[str, ...],
    *,
    patch_size: int = 32,
    crop_area: float = 0.25,
    grid_size: int = 4,
) -> dict[str, Tensor]:
    """Return layers averaged over a grid of V patches and mirror images, (M, D) each.

    ``patch_size`` and ``crop_area`` are those of training, ``grid_size`` the patches in
    a row and in a column of the grid.
    """
    device = next(network.parameters()).device
    height, width = images.shape[-2:]
    grid = view_grid(crop_side(height, width, crop_area), (height, width), grid_size)
    n_views = len(grid.top)
    found: dict[str, list[Tensor]] = {name: [] for name in layers}
    for block in images.split(max(1, _PATCHES_AT_ONCE[device.type] // n_views)):
        pixels = block.to(device).float().div_(255).repeat(n_views, 1, 1, 1)
        each = [part.to(device).repeat_interleave(len(block)) for part in grid[1:]]
        with torch.inference_mode(), _mixed(device):
            views = standardise(cut_patches(pixels, Crop(grid.side, *each), patch_size))
            for name, rows in network.layers(views, layers).items():
                found[name].append(rows.unflatten(0, (n_views, -1)).mean(dim=0))
    return {name: torch.cat(blocks) for name, blocks in found.items()}


def view_grid(side: int, image_size: tuple[int, int], grid_size: int) -> Crop:
    """Return evenly spaced squares from edge to edge, as they are and then flipped.

    A grid of one is the centre. Squares start at whole pixels: training has seen no
    others.
    """
    steps = torch.linspace(0, 1, grid_size) if grid_size > 1 else torch.full((1,), 0.5)
    height, width = image_size
    tops, lefts = torch.meshgrid(
        (steps * (height - side)).round(),
        (steps * (width - side)).round(),
        indexing="ij",
    )
    flip = torch.arange(2 * tops.numel()) >= tops.numel()
    return Crop(side, tops.flatten().repeat(2), lefts.flatten().repeat(2), flip)


@torch.no_grad()
def principal_features(
    rows: Tensor, n_fitted: int, n_components: int, *, is_centred: bool = True
) -> Tensor:
    """Return unit rows (M, K) on the principal axes of the first ``n_fitted`` rows.

    ``is_centred`` says whether spread is measured from the mean or from the origin.
    """
    fitted = rows[:n_fitted].double()
    mean = fitted.mean(dim=0) if is_centred else torch.zeros_like(fitted[0])
    spread = fitted.T @ fitted / n_fitted - torch.outer(mean, mean)
    n_features = len(spread)
    # LAPACK on the host finds the few axes wanted, and the same ones everywhere.
    _, vectors = scipy.linalg.eigh(
        spread.cpu().numpy(),
        subset_by_index=(n_features - n_components, n_features - 1),
    )
    axes = torch.from_numpy(vectors).T.flip(0)  # (K, D), largest eigenvalue first
    # An axis and its negative are the same: fix the sign by the largest entry.
    largest = axes.gather(1, axes.abs().argmax(dim=1, keepdim=True))
    axes = (axes * largest.sign()).float().to(rows.device)
    return F.normalize((rows - mean.float()) @ axes.T, dim=1)
