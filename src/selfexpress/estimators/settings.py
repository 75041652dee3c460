"""The settings of a fit: what the user gave, and ours for "auto"."""

from __future__ import annotations

import inspect
import warnings
from dataclasses import asdict, fields
from typing import Any

import torch
from torch import Tensor

from selfexpress import distributed
from selfexpress.config import (
    NetworkConfig,
    TrainConfig,
    require_choice,
    require_count,
    require_flag,
)
from selfexpress.errors import ConfigError, IgnoredSettingWarning
from selfexpress.estimators import streaming
from selfexpress.estimators.base import least_clusters
from selfexpress.ops.self_expression import unit_rows
from selfexpress.rows.sources import RowSource
from selfexpress.solvers.problem import GAMMA_SCALES, require_scale
from selfexpress.training.choices import (
    choose_graph,
    choose_learning_rate,
    default_sizes,
    is_auto,
)
from selfexpress.training.start import some_rows

# Rows up to which all are in the graph, if their coefficients are solved for.
MOST_IN_GRAPH = 20_000
# Numbers in the rows up to which every row may express every other. Beyond, the rows
# most like each are looked at, which gives the same labels sooner.
_FEW_NUMBERS = 2**18
_N_SIMILAR = 100
# Squared length of the mean of unit rows from which on they count as one direction
# with small differences, and the differences are what is clustered; without any, up to
# rounding, nothing would be left.
_ONE_DIRECTION = 0.9
_NO_DIFFERENCE = 1 - 1e-9
# Settings that only training heeds.
_OF_TRAINING = (
    "hidden_sizes",
    "n_embedding",
    "n_train_samples",
    "batch_size",
    "learning_rate",
    "schedule",
    "optimizer",
    "start",
    "algorithm",
    "callbacks",
    "checkpoint",
)


def is_exact(model: Any) -> bool:
    """Say whether a model solves for its coefficients; SENet may learn them only."""
    return getattr(model, "refine", "auto") is not None


def chosen_settings(model: Any, n_samples: int, device: torch.device) -> dict[str, Any]:
    """Return what may be "auto" in a fit, with what suits data and device for it."""
    require_refine(model.refine)
    require_choice("gamma_scale", model.gamma_scale, GAMMA_SCALES)
    ours = asdict(default_sizes(device)) | choose_graph(model.n_clusters, n_samples)
    if is_exact(model):
        ours["max_iter"] = 0
        if ours["affinity"] == "symmetric":
            ours["affinity"] = "combined"
    given = {name: getattr(model, name) for name in ours}
    return {
        name: ours[name] if is_auto(value) else value for name, value in given.items()
    }


def require_refine(refine: object) -> None:
    """Refuse what is neither "auto" nor None."""
    if refine is not None and not is_auto(refine):
        raise ConfigError(
            f"refine must be 'auto' or None, got {refine!r}. None is the paper's way, "
            "in which the network alone finds coefficients."
        )


def warn_of_no_training(model: Any) -> None:
    """Warn of settings of a training that there will not be."""
    if not (is_exact(model) and is_auto(model.max_iter)):
        return
    parameters = inspect.signature(type(model)).parameters
    defaults = {name: parameters[name].default for name in _OF_TRAINING}
    changed = [n for n in _OF_TRAINING if _differs(getattr(model, n), defaults[n])]
    if changed:
        warnings.warn(
            f"{', '.join(changed)} should go with a number of training steps: "
            "max_iter='auto' trains no network where coefficients are solved for. "
            "Give max_iter, for example 1000, or refine=None.",
            IgnoredSettingWarning,
            stacklevel=4,
        )


def _differs(value: Any, default: Any) -> bool:
    return value is not default and not (
        isinstance(value, str | int | float) and value == default
    )


def train_settings(model: Any, chosen: dict[str, Any]) -> TrainConfig:
    """Gather and check the settings of training.

    ``gamma="auto"`` is decided when the training rows are known; until then it is the
    default of :class:`~selfexpress.config.TrainConfig`.
    """
    require_references(model.n_references)
    if not is_auto(model.n_nonzero):
        require_count("n_nonzero", model.n_nonzero, advice="Use for example 30.")
    if chosen["n_train_samples"] is not None:
        advice = "Use None for all rows."
        require_count(
            "n_train_samples", chosen["n_train_samples"], least=2, advice=advice
        )
    names = [field.name for field in fields(TrainConfig) if hasattr(model, field.name)]
    settings = {name: getattr(model, name) for name in names}
    settings |= {name: chosen[name] for name in names if name in chosen}
    if is_auto(model.gamma):
        del settings["gamma"]
    else:
        require_scale(model.gamma_scale, settings["l1_ratio"])
    network = NetworkConfig(chosen["hidden_sizes"], chosen["n_embedding"])
    if is_auto(model.learning_rate):
        settings["learning_rate"] = choose_learning_rate(model.learning_rate, network)
    if is_exact(model) and is_auto(model.max_iter):
        settings["max_iter"] = 1  # checked, not used
    return TrainConfig(**settings)


def require_references(n_references: object) -> None:
    """Refuse what is neither "auto" nor a number of rows."""
    if not is_auto(n_references):
        require_count("n_references", n_references, advice="Use 10_000.")


def graph_rows(model: Any, n_samples: int, *, seed: int) -> Tensor:
    """Return the positions of the rows to build the graph of."""
    n_rows = streaming.n_clustered(
        model.n_cluster_samples,
        n_samples,
        n_clusters=least_clusters(model.n_clusters),
        n_references=chosen_references(model),
        n_nonzero=model.n_nonzero if isinstance(model.n_nonzero, int) else _N_SIMILAR,
        most=MOST_IN_GRAPH if is_exact(model) else None,
    )
    # Not the seed of the training sample: the graph should see other rows, too.
    return streaming.draw(n_samples, n_rows, seed=seed + 1)


def chosen_references(model: Any) -> int:
    """Return the rows of a graph of a sample; "auto" is fewer for a network alone."""
    if not is_auto(model.n_references):
        return int(model.n_references)
    return MOST_IN_GRAPH if is_exact(model) else 10_000


def chosen_candidates(
    n_candidates: int | str | None, n_rows: int, n_features: int
) -> int | None:
    """Return how many similar rows may express each; None for all rows."""
    if n_candidates is None or not is_auto(n_candidates):
        return None if n_candidates is None else int(n_candidates)
    return None if n_rows * n_features <= _FEW_NUMBERS else _N_SIMILAR


def chosen_center(model: Any, source: RowSource, index: Tensor) -> Tensor | None:
    """Return what to subtract from rows before they are scaled, if anything.

    "auto" centres rows that all point nearly the same way, such as spectra, by the
    mean of the rows that the graph is built of.
    """
    if not is_auto(model.center):
        require_flag("center", model.center, advice="Use 'auto'.")
    if is_auto(model.center):
        mean = unit_rows(some_rows(source).double()).mean(dim=0)
        # Many processes must choose the same.
        length = distributed.from_main(mean.square().sum())
        has_differences = _ONE_DIRECTION <= float(length) < _NO_DIFFERENCE
        if not is_exact(model) or not has_differences:
            return None
    elif not model.center:
        return None
    total = torch.zeros(source.n_features, dtype=torch.float64)
    for part in index.split(8192):
        total += source.take(part).double().sum(dim=0).cpu()
    return distributed.from_main(total / len(index))
