"""MNIST from raw pixels in memory to labels, with seconds by stage.

Images are scattered, whitened to 250 dimensions and clustered by ``SENet`` with its
defaults. On a GPU, the stages after training once more, each alone: the largest
coefficients of every row, the graph of nearest rows, eigenvectors and k-means.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from reproduction.benchmark import benchmark
from reproduction.evaluation import label_scores
from reproduction.presets import DEFAULTS
from reproduction.record import peak_bytes
from reproduction.runner import Context, stage
from reproduction.timing import timed
from selfexpress import SENet, load_dataset
from selfexpress.affinity.coefficients import embed_keys, largest_coefficients
from selfexpress.affinity.nearest_rows import nearest_sparse_rows
from selfexpress.features import Scattering2D, Whitening
from selfexpress.ops.self_expression import unit_rows
from selfexpress.rows.sources import ArraySource
from selfexpress.spectral import spectral_clusters

N_COMPONENTS = 250


@benchmark(
    "MNIST-70k from raw pixels to labels in at most 6 s on a GPU, 6 min on two cores",
    quick={"n_images": 1000},
)
def pipeline(
    context: Context, seed: int, *, n_images: int | None = None
) -> dict[str, Any]:
    """Run it once; on a GPU, once before to warm up."""
    data = load_dataset("mnist")
    images = torch.from_numpy(np.array(data.samples[:n_images]))
    if context.device.type == "cuda":
        run(images, context.device, seed=99)
        torch.cuda.reset_peak_memory_stats()
    model, features, seconds = run(images, context.device, seed)
    found = {
        **label_scores(model.labels_, data.labels[:n_images]),
        "seconds": seconds,
        "peak_gib": peak_bytes(context.device) / 2**30,
    }
    if context.device.type == "cuda":
        found["stages"] = stages_alone(model, features, context.device)
    return found


def run(
    images: Tensor, device: torch.device, seed: int
) -> tuple[SENet, Tensor, dict[str, float]]:
    """Return model, features and seconds by stage."""
    seconds: dict[str, float] = {}
    with stage(seconds, "upload"):
        images = images.to(device)
    with stage(seconds, "scattering"):
        scattered = Scattering2D().fit_transform(images)
    with stage(seconds, "whitening"):
        features = Whitening(N_COMPONENTS).fit_transform(scattered)
    del scattered
    settings = DEFAULTS | {"n_cluster_samples": None}
    model = SENet(10, **settings, random_state=seed, device=device)
    with stage(seconds, "fit"):
        model.fit(features)
    seconds["total"] = sum(seconds.values())
    seconds |= {f"fit: {name}": value for name, value in model.timings_.items()}
    return model, features, seconds


def stages_alone(
    model: SENet, features: Tensor, device: torch.device
) -> dict[str, float]:
    """Time what follows training, with everything on the device."""
    source = ArraySource(unit_rows(features.float()), device=device)
    keys = embed_keys(model.network_, source, block_size=8192)

    def largest() -> Any:
        return largest_coefficients(
            model.network_, source, keys, n_nonzero=1000, exclude_self=True
        )

    rows = largest().normalized()
    functions = {
        "largest 1000 coefficients": largest,
        "3 nearest rows": lambda: nearest_sparse_rows(
            rows, rows, n_neighbors=3, exclude_self=True
        ),
        "15 eigenvectors and k-means": lambda: spectral_clusters(
            model.affinity_matrix_, 10, n_eigenvectors=15, device=device
        ),
    }
    return {
        name: timed(function, device=device).median
        for name, function in functions.items()
    }
