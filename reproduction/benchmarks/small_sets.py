"""SENet's defaults against the best of EnSC and SSC-OMP on letters, objects and faces.

SENet takes scattered and whitened images, as for digits. EnSC and SSC-OMP take unit
pixel rows and plain spectral clustering, as published, with every setting of a grid;
the best by its accuracy counts, which favours them.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from reproduction.benchmark import benchmark
from reproduction.evaluation import label_scores
from reproduction.methods import make_method
from reproduction.presets import DEFAULTS
from reproduction.runner import Context
from reproduction.study import Preparation, StudyCell, study_rows
from selfexpress import SENet

# l1_ratio and relative gamma of EnSC; entries of SSC-OMP.
ENSC = ((0.7, 200.0), (0.7, 20.0), (0.9, 3.0), (0.9, 10.0), (0.9, 50.0), (1.0, 20.0))
OMP = (3, 5, 7, 10)
# Beyond this many rows, the settings that were best on a part of them.
LARGE = 10_000
ENSC_LARGE = ((0.9, 3.0), (0.9, 10.0))
OMP_LARGE = (5,)


@benchmark(
    "One default is at least as good as the best of EnSC and SSC-OMP over a grid",
    quick={"dataset": "orl", "method": "others", "is_short": True},
    over={"dataset": ("orl", "coil20", "ocr-letters"), "method": ("senet", "others")},
)
def small_sets(
    context: Context,
    seed: int,
    *,
    dataset: str = "orl",
    method: str = "senet",
    is_short: bool = False,
) -> dict[str, Any]:
    """Score SENet, or every setting of the grid and the best of them."""
    if method == "senet":
        rows, truth = study_rows(StudyCell(dataset=dataset), context)
        settings = DEFAULTS | {"device": context.device, "random_state": seed}
        model = SENet(len(np.unique(truth)), **settings).fit(rows)
        scores = label_scores(model.labels_, truth)
        return {**scores, "seconds": sum(model.timings_.values())}
    pixels = StudyCell(dataset=dataset, preparation=Preparation("pixels", "none"))
    rows, truth = study_rows(pixels, context)
    found = {}
    for title, name, settings in grid(is_short or len(rows) > LARGE):
        start = time.perf_counter()
        model = make_method(
            name, len(np.unique(truth)), seed=seed, device=context.device, **settings
        ).fit(rows)
        seconds = time.perf_counter() - start
        found[title] = label_scores(model.labels_, truth) | {"seconds": seconds}
    best = max(found, key=lambda title: found[title]["accuracy"])
    return {"accuracy": found[best]["accuracy"], "best": best, "settings": found}


def grid(is_short: bool) -> list[tuple[str, str, dict[str, Any]]]:
    """Return the settings to choose the best of: title, method and arguments."""
    ensc, omp = (ENSC_LARGE, OMP_LARGE) if is_short else (ENSC, OMP)
    return [
        (
            f"EnSC, l1_ratio {ratio}, gamma {gamma} relative",
            "ensc",
            {
                "l1_ratio": ratio,
                "gamma": gamma,
                "gamma_scale": "relative",
                "affinity": "symmetric",
            },
        )
        for ratio, gamma in ensc
    ] + [(f"SSC-OMP, {n}", "ssc-omp", {"n_nonzero": n, "normalize": True}) for n in omp]
