"""Motion segmentation: mean error over the 155 sequences of Hopkins155.

SENet's defaults on levelled trajectories (`Trajectories`), one setting for every
sequence; the number of motions is given. EnSC, SSC and SSC-OMP take the same rows, and
trajectories as they are with a constant appended, with plain spectral clustering as
published; least squares has a graph of 10 weighted neighbours. All settings were chosen
on every third sequence by name; the error on the others stands beside that of all.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from reproduction.benchmark import benchmark
from reproduction.methods import make_method
from reproduction.presets import DEFAULTS
from reproduction.runner import Context, stage
from selfexpress import SENet, load_dataset
from selfexpress.errors import DegenerateError, DegenerateWarning
from selfexpress.features import Trajectories
from selfexpress.metrics import clustering_accuracy

CHOSEN_EVERY = 3
SMALL = {"hidden_sizes": (128, 128), "n_embedding": 128}
PLAIN = {"affinity": "symmetric", "n_eigenvectors": None}
# By title: name of the method and settings.
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "EnSC, l1_ratio 0.9, gamma 20": ("ensc", {"gamma": 20.0, "l1_ratio": 0.9, **PLAIN}),
    "SSC (EnSC, l1_ratio 1), gamma 90": (
        "ensc",
        {"gamma": 90.0, "l1_ratio": 1.0, **PLAIN},
    ),
    "least squares (EnSC, l1_ratio 0), gamma 10": (
        "ensc",
        {
            "gamma": 10.0,
            "l1_ratio": 0.0,
            "affinity": "weighted_neighbors",
            "n_neighbors": 10,
        },
    ),
    "SSC-OMP, 4": ("ssc-omp", {"n_nonzero": 4, "normalize": True}),
}


@benchmark(
    "Hopkins155: mean error over 155 sequences at most 5 %, one setting, the defaults",
    quick={"every": 20, "is_small": True, "max_iter": 300},
    over={"method": ("SENet", *OTHERS), "rows": ("levelled", "as they are")},
)
def hopkins155(
    context: Context,
    seed: int,
    *,
    method: str = "SENet",
    rows: str = "levelled",
    every: int = 1,
    is_small: bool = False,
    max_iter: int | str = "auto",
    jobs: int = 1,
) -> dict[str, Any]:
    """Return the errors of a method, in ``jobs`` processes side by side."""
    known = load_dataset("hopkins155").sequences
    names = [name for name in sorted(known) if name != "dancing"]
    sequences = {name: known[name] for name in names[::every]}
    sizes = SMALL if is_small else {}
    error = partial(
        error_of,
        method=method,
        rows=rows,
        settings={"max_iter": max_iter, **sizes} if method == "SENet" else {},
        seed=seed,
        device=context.device,
    )
    seconds: dict[str, float] = {}
    with stage(seconds, "all"):
        if jobs == 1:
            errors = [*map(error, sequences.values())]
        else:
            with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
                errors = [*pool.map(error, sequences.values())]
    found = dict(zip(sequences, errors, strict=True))
    chosen = set(names[::CHOSEN_EVERY])
    return {
        "summary": summary(sequences, found, chosen),
        "seconds": seconds,
        "errors": found,
    }


def error_of(
    sequence: Any,
    *,
    method: str,
    rows: str,
    settings: dict[str, Any],
    seed: int,
    device: torch.device,
) -> float:
    """Return the share of wrong points of a sequence."""
    # Graphs in too many pieces are part of what is measured.
    warnings.simplefilter("ignore", DegenerateWarning)
    points = np.asarray(sequence.samples)
    X = with_constant(points) if rows == "as they are" else levelled(points)
    n_motions = len(np.unique(sequence.labels))
    if method == "SENet":
        model: Any = SENet(
            n_motions, **DEFAULTS | settings, random_state=seed, device=device
        )
    else:
        name, own = OTHERS[method]
        model = make_method(name, n_motions, seed=seed, device=device, **own)
    try:
        labels = model.fit(X).labels_
    except DegenerateError:
        labels = np.zeros(len(X), dtype=int)
    return 1 - clustering_accuracy(sequence.labels, labels)


def with_constant(rows: NDArray[Any]) -> NDArray[Any]:
    """Return trajectories as they are, and 1, as the affine constraint asks."""
    return np.concatenate([rows, np.ones((len(rows), 1))], axis=1)


def levelled(rows: NDArray[Any]) -> NDArray[Any]:
    """Return trajectories as SENet takes them."""
    found: NDArray[Any] = Trajectories().fit_transform(rows)
    return found


def summary(
    sequences: Mapping[str, Any], found: Mapping[str, float], chosen: set[str]
) -> dict[str, float]:
    """Return means of the errors over what they are commonly reported for."""
    motions = {name: len(np.unique(each.labels)) for name, each in sequences.items()}
    parts = {
        "all": list(sequences),
        "two motions": [name for name in sequences if motions[name] == 2],
        "three motions": [name for name in sequences if motions[name] == 3],
        "chosen on": [name for name in sequences if name in chosen],
        "held out": [name for name in sequences if name not in chosen],
    }
    means = {
        part: float(np.mean([found[name] for name in members]))
        for part, members in parts.items()
        if members
    }
    return means | {"median": float(np.median(list(found.values())))}
