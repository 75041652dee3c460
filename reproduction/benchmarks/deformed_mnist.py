"""A million deformed digits, raw pixels to labels in minutes.

Each image is one of the 70,000 of MNIST, turned, scaled, sheared, shifted and bent
elastically by an amount of its own, generated when it is read. Scattering, whitening
fitted to a part of the images, and ``SENet`` with a graph of a sample follow. The
accuracy is against the digits; nothing is stored but 250 numbers an image.

    python benchmarks/bench_deformed_mnist.py --device cuda      1,000,000 images
    python benchmarks/bench_deformed_mnist.py --quick
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from reproduction import timing as record
from selfexpress import SENet
from selfexpress.datasets.loading import load_dataset
from selfexpress.features.scattering import Scattering2D
from selfexpress.features.whitening import Whitening
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


def main() -> None:
    arguments = parse_arguments()
    data = load_dataset("mnist")
    synchronize = torch.cuda.synchronize if arguments.device == "cuda" else int
    run(arguments, data.samples, n_images=2 * GROUP_SIZE if not arguments.quick else 64)
    synchronize()
    start = time.perf_counter()
    labels, stages = run(arguments, data.samples, n_images=arguments.images)
    seconds = time.perf_counter() - start
    truth = data.labels[np.arange(arguments.images) % len(data)]
    results: dict[str, Any] = {
        "n_images": arguments.images,
        "seconds": seconds,
        "stages": stages,
        "accuracy": clustering_accuracy(labels, truth),
        "peak_bytes": record.peak_bytes(arguments.device),
    }
    print(results)
    if not arguments.quick:
        print(
            record.write_record(
                "deformed-mnist",
                results,
                vars(arguments),
                seed=arguments.seed,
                device=arguments.device,
            )
        )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--whitened-on", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=250)
    parser.add_argument("--max-iter", type=int, help="that of SENet unless given")
    parser.add_argument("--sample", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.images, arguments.whitened_on, arguments.dimension = 600, 300, 50
        arguments.max_iter, arguments.sample = 20, 200
    return arguments


def run(
    arguments: argparse.Namespace, images: Any, *, n_images: int
) -> tuple[np.ndarray, dict[str, float]]:
    """Return the labels of deformed images and the seconds of each stage."""
    start = time.perf_counter()
    device, seed = arguments.device, arguments.seed
    pixels = torch.from_numpy(np.asarray(images)).to(device)
    scattering = Scattering2D(resize=32, device=device).fit(images[:2])
    n_scattered = int(np.prod(scattering.output_shape_))

    def scattered(n_wanted: int) -> MappedSource:
        source = DeformedImages(pixels, n_wanted, seed=seed)
        return MappedSource(
            source,
            lambda rows: scattering.transform(rows.view(-1, SIDE, SIDE)),
            n_scattered,
        )

    whitening = Whitening(min(arguments.dimension, n_images), block_size=GROUP_SIZE)
    whitening.fit(scattered(min(arguments.whitened_on, n_images)))
    stages = {"whitening": time.perf_counter() - start}
    features = torch.empty(n_images, whitening.n_components, device=device)
    for block in whitening.stream(scattered(n_images)).blocks(4 * GROUP_SIZE):
        features[block.index] = block.rows
    stages["features"] = time.perf_counter() - start - stages["whitening"]
    model = SENet(
        N_CLUSTERS,
        max_iter=arguments.max_iter or "auto",
        n_cluster_samples=min(arguments.sample, n_images),
        device=device,
        random_state=seed,
    ).fit(features)
    return model.labels_, {**stages, **model.timings_}


if __name__ == "__main__":
    main()
