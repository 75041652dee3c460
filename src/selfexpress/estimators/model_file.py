"""A fitted model as one safetensors file with JSON in its header.

The file is read as data that may be damaged or hostile: every number is checked
before anything is built from it, and nothing in it can run.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from selfexpress.affinity.assignment import References
from selfexpress.config import (
    ClusterConfig,
    NetworkConfig,
    TrainConfig,
    require_choice,
    require_count,
)
from selfexpress.files.container import Kind, plain_number
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.solvers.problem import GAMMA_SCALES
from selfexpress.training.step import RECORDED

MODEL = Kind(
    "selfexpress-model",
    version=1,
    what="a model written by SENet.save",
    advice="Save the model again.",
)


@dataclass(frozen=True)
class SavedModel:
    """What a model file holds.

    Attributes
    ----------
    settings : dict of str to JSON value
        Constructor arguments.
    feature_names : ndarray of str or None
        Columns of the data frame that was fitted.
    network : SelfExpressiveNetwork
    references : References
    labels : ndarray of shape (n_samples,), int64
        Of all fitted rows.
    history : dict of str to ndarray
    """

    settings: dict[str, Any]
    feature_names: NDArray[np.object_] | None
    network: SelfExpressiveNetwork
    references: References
    labels: NDArray[np.int64]
    history: dict[str, NDArray[np.float64]]


def write_model(model: SavedModel, path: Path) -> None:
    """Write a model; an older file at ``path`` stays until the new one is whole."""
    names = model.feature_names
    # What would be refused when it is read must not be written.
    plain = json.loads(json.dumps(model.settings, default=plain_number))
    _settings(plain, plain.keys())
    facts = {
        "n_features": model.network.n_features,
        "feature_names": None if names is None else [str(name) for name in names],
        "settings": plain,
    }
    MODEL.write(path, facts, _tensors(model))


def read_model(
    path: Path, device: torch.device, *, known: Collection[str]
) -> SavedModel:
    """Read a model onto a device.

    Parameters
    ----------
    path : Path
    device : torch.device
    known : collection of str
        The settings that a model has, no more and no fewer.

    Raises
    ------
    CheckpointError
        If the file is missing, damaged, of a newer format or no model.
    """
    with MODEL.reading(path) as contents:
        facts, tensors = contents.facts, contents.tensors
        settings = _settings(facts["settings"], known)
        network = _network(facts["n_features"], settings, tensors)
        references = _references(settings, tensors)
        labels = _labels(tensors["labels"], settings["n_clusters"])
        if settings["n_clusters"] > len(labels):
            raise ValueError(
                f"{len(labels)} rows have no {settings['n_clusters']} clusters"
            )
        history = _history(tensors)
        names = _feature_names(facts.get("feature_names"), facts["n_features"])
    references = replace(references, keys=references.keys.to(device))
    return SavedModel(settings, names, network.to(device), references, labels, history)


def _tensors(model: SavedModel) -> dict[str, Tensor]:
    tensors = {
        "labels": torch.from_numpy(model.labels),
        "references.keys": model.references.keys,
        "references.labels": torch.from_numpy(model.references.labels),
    }
    for name, weight in model.network.state_dict().items():
        tensors[f"network.{name}"] = weight
    for name in RECORDED:
        tensors[f"history.{name}"] = torch.from_numpy(model.history[name])
    return tensors


def _settings(settings: Any, known: Collection[str]) -> dict[str, Any]:
    """Check the settings by the rules that a constructor's arguments are held to."""
    if not isinstance(settings, dict) or settings.keys() != set(known):
        raise TypeError("its settings are not those of a model of this version")
    checked: dict[str, Any] = dict(settings)
    checked["hidden_sizes"] = tuple(checked["hidden_sizes"])
    require_count("n_clusters", checked["n_clusters"], advice="")
    require_choice("gamma_scale", checked["gamma_scale"], GAMMA_SCALES)
    for config in (NetworkConfig, TrainConfig, ClusterConfig):
        known = config.__dataclass_fields__.keys() & checked.keys()
        config(**{name: checked[name] for name in known})
    if checked["n_train_samples"] is not None:
        require_count("n_train_samples", checked["n_train_samples"], advice="")
    for name in ("n_nonzero", "n_references"):
        require_count(name, checked[name], advice="")
    return checked


def _network(
    n_features: Any, settings: dict[str, Any], tensors: dict[str, Tensor]
) -> SelfExpressiveNetwork:
    """Build the network around the stored weights; shapes are checked, not trusted."""
    require_count("n_features", n_features, advice="")
    config = NetworkConfig(settings["hidden_sizes"], settings["n_embedding"])
    prefix = "network."
    weights = {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
    n_layers = sum(name.startswith("query_tower.") for name in weights) // 2
    if n_layers != len(config.hidden_sizes) + 1:
        raise ValueError(f"{n_layers} layers do not fit the settings")
    # On the meta device nothing is allocated for a size that the file only claims.
    with torch.device("meta"):
        network = SelfExpressiveNetwork(n_features, config)
    network.load_state_dict(weights, assign=True)
    for name, weight in weights.items():
        _require_numbers(weight, f"the weight {name}")
    return network


def _references(settings: dict[str, Any], tensors: dict[str, Tensor]) -> References:
    keys = tensors["references.keys"]
    if keys.ndim != 2 or keys.shape[1] != settings["n_embedding"]:
        raise ValueError(f"the reference keys have shape {tuple(keys.shape)}")
    _require_numbers(keys, "the reference keys")
    labels = _labels(tensors["references.labels"], settings["n_clusters"])
    if len(labels) != len(keys):
        raise ValueError(
            f"{len(labels)} reference labels stand beside {len(keys)} keys"
        )
    return References(keys, labels, settings["n_clusters"])


def _require_numbers(tensor: Tensor, what: str) -> None:
    if tensor.dtype != torch.float32 or not torch.isfinite(tensor).all():
        raise ValueError(f"{what} must be finite float32 numbers")


def _history(tensors: dict[str, Tensor]) -> dict[str, NDArray[np.float64]]:
    columns = {name: tensors[f"history.{name}"] for name in RECORDED}
    shapes = {tuple(column.shape) for column in columns.values()}
    is_float = all(column.dtype == torch.float64 for column in columns.values())
    if len(shapes) != 1 or len(next(iter(shapes))) != 1 or not is_float:
        raise ValueError("the history is not a table of float64 numbers")
    return {name: column.numpy() for name, column in columns.items()}


def _feature_names(names: Any, n_features: int) -> NDArray[np.object_] | None:
    if names is None:
        return None
    is_list = isinstance(names, list) and len(names) == n_features
    if not is_list or not all(isinstance(name, str) for name in names):
        raise ValueError("the feature names are not one for each feature")
    return np.array(names, dtype=object)


def _labels(labels: Tensor, n_clusters: int) -> NDArray[np.int64]:
    if labels.ndim != 1 or labels.dtype != torch.int64 or len(labels) == 0:
        raise ValueError(
            f"the labels are {labels.dtype} of shape {tuple(labels.shape)}"
        )
    if not 0 <= int(labels.min()) <= int(labels.max()) < n_clusters:
        raise ValueError(f"the labels are not all from 0 to {n_clusters - 1}")
    return labels.numpy()
