"""A million deformed digits, from raw pixels to labels.

Images are made when they are read, the same ones every time: the digits of MNIST,
turned, stretched, sheared, shifted and bent. The whitening is found on some of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from reproduction.benchmark import benchmark
from reproduction.presets import DEFAULTS
from reproduction.record import peak_bytes
from reproduction.runner import Context, stage
from selfexpress import SENet, load_dataset
from selfexpress.features import Scattering2D, Whitening
from selfexpress.metrics import clustering_accuracy
from selfexpress.rows.shards import regroup
from selfexpress.rows.sources import MappedSource, RowBlock

N_CLUSTERS = 10
# Images that share a random generator; a group can be made again by itself.
GROUP_SIZE = 4096
SIDE = 28


class DeformedImages:
    """Rows of pixels that are made when they are read, the same ones every time."""

    n_features = SIDE * SIDE

    def __init__(self, images: Tensor, n_images: int, *, seed: int) -> None:
        self._images = images  # (70000, 28, 28), on the device
        self._n_images = n_images
        self._seed = seed

    def __len__(self) -> int:
        return self._n_images

    def blocks(self, block_size: int) -> Iterator[RowBlock]:
        groups = (self._group(n) for n in range(-(-len(self) // GROUP_SIZE)))
        return regroup(groups, start=0, block_size=block_size)

    def take(self, index: Tensor) -> Tensor:
        rows = [self._group(n // GROUP_SIZE)[n % GROUP_SIZE] for n in index.tolist()]
        return torch.stack(rows)

    def _group(self, number: int) -> Tensor:
        start = number * GROUP_SIZE
        stop = min(start + GROUP_SIZE, len(self))
        device = self._images.device
        base = torch.arange(start, stop, device=device) % len(self._images)
        generator = torch.Generator(device).manual_seed(self._seed + number)
        return deformed(self._images[base].float(), generator).flatten(1)


def deformed(images: Tensor, generator: torch.Generator) -> Tensor:
    """Bend images, (B, 28, 28) in and out, values from 0 to 255."""

    def uniform(*shape: int) -> Tensor:
        return torch.empty(shape, device=images.device).uniform_(
            -1, 1, generator=generator
        )

    n_images = len(images)
    angle = np.deg2rad(8) * uniform(n_images)
    width, height = 1 + 0.08 * uniform(n_images), 1 + 0.08 * uniform(n_images)
    shear, shift = 0.1 * uniform(n_images), (1.0 * 2 / SIDE) * uniform(n_images, 2)
    cos, sin = angle.cos(), angle.sin()
    first = torch.stack([width * cos, shear * cos - height * sin, shift[:, 0]], 1)
    second = torch.stack([width * sin, shear * sin + height * cos, shift[:, 1]], 1)
    shape = [n_images, 1, SIDE, SIDE]
    grid = functional.affine_grid(
        torch.stack([first, second], 1), shape, align_corners=False
    )
    # Smooth displacements of up to about a pixel: noise on a coarse grid, enlarged.
    coarse = (0.8 * 2 / SIDE) * uniform(n_images, 2, 5, 5)
    bending = functional.interpolate(
        coarse, size=(SIDE, SIDE), mode="bicubic", align_corners=False
    )
    grid = grid + bending.permute(0, 2, 3, 1)
    bent = functional.grid_sample(images[:, None], grid, align_corners=False)
    return bent.squeeze(1).round()


@benchmark(
    "1,000,000 deformed digits, raw pixels to labels, in at most 3 min, ACC 0.97",
    quick={
        "images": 600,
        "whitened_on": 300,
        "dimension": 50,
        "max_iter": 20,
        "sample": 200,
    },
)
def deformed_mnist(
    context: Context,
    seed: int,
    *,
    images: int = 1_000_000,
    whitened_on: int = 100_000,
    dimension: int = 250,
    max_iter: int | str = "auto",
    sample: int = 40_000,
) -> dict[str, Any]:
    """Warm up on a few images, then label all."""
    data = load_dataset("mnist")
    pixels = torch.from_numpy(np.asarray(data.samples)).to(context.device)

    def run(n_images: int) -> tuple[NDArray[np.int64], dict[str, float]]:
        seconds: dict[str, float] = {}
        source = scattered(pixels, n_images, seed)
        with stage(seconds, "whitening"):
            whitening = Whitening(min(dimension, n_images), block_size=GROUP_SIZE)
            whitening.fit(scattered(pixels, min(whitened_on, n_images), seed))
        with stage(seconds, "features"):
            shape = (n_images, whitening.n_components)
            features = torch.empty(shape, device=pixels.device)
            for block in whitening.stream(source).blocks(4 * GROUP_SIZE):
                features[block.index] = block.rows
        settings = DEFAULTS | {
            "max_iter": max_iter,
            "n_cluster_samples": min(sample, n_images),
        }
        model = SENet(
            N_CLUSTERS, **settings, device=context.device, random_state=seed
        ).fit(features)
        return model.labels_, {**seconds, **model.timings_}

    run(min(images, 2 * GROUP_SIZE))
    labels, stages = run(images)
    truth = data.labels[np.arange(images) % len(data)]
    return {
        "seconds": sum(stages.values()),
        "stages": stages,
        "accuracy": clustering_accuracy(labels, truth),
        "peak_bytes": peak_bytes(context.device),
    }


def scattered(pixels: Tensor, n_images: int, seed: int) -> MappedSource:
    """Return the scattering coefficients of deformed images, made as they are read."""
    scattering = Scattering2D(resize=32, device=pixels.device).fit(pixels[:2].cpu())
    return MappedSource(
        DeformedImages(pixels, n_images, seed=seed),
        lambda rows: scattering.transform(rows.view(-1, SIDE, SIDE)),
        int(np.prod(scattering.output_shape_)),
    )
