"""Rows never seen: assigned as well as those of the fit, alike after save and load."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from reproduction.benchmark import benchmark
from reproduction.runner import Context
from reproduction.suite_sets import SETS
from selfexpress import SENet
from selfexpress.metrics import clustering_accuracy

_FITTED = 0.7


@benchmark(
    "New rows are assigned as well as the rows of the fit",
    quick={"dataset": "digits"},
    over={"dataset": tuple(name for name in SETS if name != "hopkins155")},
)
def new_rows(context: Context, seed: int, *, dataset: str = "digits") -> dict[str, Any]:
    """Fit on seven rows of ten; score these and the rest by one matching."""
    X, truth = next(SETS[dataset].pieces())
    is_fitted = np.random.default_rng(seed).random(len(X)) < _FITTED
    k = len(np.unique(truth))
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        model = SENet(k, device=context.device, random_state=seed).fit(X[is_fitted])
        labels = model.predict(X[~is_fitted])
        model.save(Path(folder) / "model")
        loaded = SENet.load(Path(folder) / "model", device=context.device)
        is_same = bool((loaded.predict(X[~is_fitted]) == labels).all())
    return {
        "fitted": clustering_accuracy(model.labels_, truth[is_fitted]),
        "new": clustering_accuracy(labels, truth[~is_fitted]),
        "same_after_loading": is_same,
    }
