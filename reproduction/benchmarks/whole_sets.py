"""Defaults on whole image sets: accuracy, seconds by stage, and the certificate."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from reproduction.benchmark import benchmark
from reproduction.evaluation import label_scores
from reproduction.runner import Context
from reproduction.study import Preparation, StudyCell, study_rows
from selfexpress import SENet


@benchmark(
    "Defaults cluster 70,000 rows in seconds, without training",
    quick={"n_rows": 2000},
    over={
        "dataset": ("mnist", "fashion-mnist", "cifar10"),
        "features": ("paper", "white"),
    },
)
def whole_sets(
    context: Context,
    seed: int,
    *,
    dataset: str = "mnist",
    features: str = "white",
    n_rows: int | None = None,
    n_references: int | str = "auto",
) -> dict[str, Any]:
    """Fit on all rows; the second of two runs is timed, when everything is loaded."""
    paper = Preparation(projection="uncentred", n_components=500)
    white = Preparation(n_components=64 if dataset == "cifar10" else 250)
    plain = Preparation(projection="none")
    how = {"white": white, "paper": plain if dataset == "cifar10" else paper}
    cell = StudyCell(dataset=dataset, preparation=how[features], n_rows=n_rows)
    rows, truth = study_rows(cell, context)
    model = SENet(
        len(np.unique(truth)),
        n_references=n_references,
        device=context.device,
        random_state=seed,
    )
    for _ in range(2):
        start = time.perf_counter()
        model.fit(rows)
        if rows.is_cuda:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
    return {
        **label_scores(model.labels_, truth),
        "seconds": seconds,
        "stages": dict(model.timings_),
        "certificate": model.settings_["certificate"],
        "similar_rows": bool(model.settings_["similar_rows"]),
    }
