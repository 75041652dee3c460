"""The settings of a fit: what the user gave, and ours for "auto"."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

import torch

from selfexpress.config import (
    NetworkConfig,
    TrainConfig,
    require_choice,
    require_count,
)
from selfexpress.estimators import streaming
from selfexpress.estimators.base import least_clusters
from selfexpress.solvers.problem import GAMMA_SCALES, require_scale
from selfexpress.training.choices import (
    choose_graph,
    choose_learning_rate,
    default_sizes,
    is_auto,
)


def chosen_settings(model: Any, n_samples: int, device: torch.device) -> dict[str, Any]:
    """Return what may be "auto" in a fit, with what suits data and device for it."""
    ours = asdict(default_sizes(device)) | choose_graph(model.n_clusters, n_samples)
    given = {name: getattr(model, name) for name in ours}
    return {
        name: ours[name] if is_auto(value) else value for name, value in given.items()
    }


def train_settings(model: Any, chosen: dict[str, Any]) -> TrainConfig:
    """Gather and check the settings of training.

    ``gamma="auto"`` is decided when the training rows are known; until then it is the
    default of :class:`~selfexpress.config.TrainConfig`.
    """
    require_count("n_nonzero", model.n_nonzero, advice="Use for example 30.")
    require_count("n_references", model.n_references, advice="Use 10_000.")
    require_choice("gamma_scale", model.gamma_scale, GAMMA_SCALES)
    names = [field.name for field in fields(TrainConfig) if hasattr(model, field.name)]
    settings = {name: getattr(model, name) for name in names}
    settings |= {name: chosen[name] for name in names if name in chosen}
    if is_auto(model.gamma):
        del settings["gamma"]
    else:
        require_scale(model.gamma_scale, settings["l1_ratio"])
    if is_auto(model.learning_rate):
        network = NetworkConfig(chosen["hidden_sizes"], chosen["n_embedding"])
        settings["learning_rate"] = choose_learning_rate(model.learning_rate, network)
    return TrainConfig(**settings)


def graph_rows(model: Any, n_samples: int, *, seed: int) -> torch.Tensor:
    """Return the positions of the rows to build the graph of."""
    n_rows = streaming.n_clustered(
        model.n_cluster_samples,
        n_samples,
        n_clusters=least_clusters(model.n_clusters),
        n_references=model.n_references,
        n_nonzero=model.n_nonzero,
    )
    # Not the seed of the training sample: the graph should see other rows, too.
    return streaming.draw(n_samples, n_rows, seed=seed + 1)
