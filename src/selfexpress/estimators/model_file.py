"""A fitted SENet or EnSC as one file.

The file is read as data that may be damaged or hostile: every number is checked
before anything is built from it, and nothing in it can run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

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
    require_flag,
)
from selfexpress.errors import ConfigError
from selfexpress.estimators.settings import require_refine
from selfexpress.files.container import Kind, plain_number
from selfexpress.network import SelfExpressiveNetwork
from selfexpress.solvers.problem import GAMMA_SCALES
from selfexpress.training.choices import is_auto
from selfexpress.training.step import RECORDED

MODEL = Kind(
    "selfexpress-model",
    version=2,
    what="a model written by SENet.save or EnSC.save",
    advice="Save the model again.",
)

# Settings that a saved model does not carry: they belong to the fit, not the model.
_NOT_SAVED = {
    "callbacks",
    "checkpoint",
    "device",
    "n_cluster_samples",
    "random_state",
    "verbose",
}
# Settings that a saved model carries as the fit decided them, those of a training if
# there was one.
_DECIDED = ("gamma", "l1_ratio")
_DECIDED_IN_TRAINING = (
    "hidden_sizes",
    "n_embedding",
    "n_train_samples",
    "max_iter",
    "batch_size",
    "learning_rate",
    "start",
)
_COUNTS = ("n_nonzero", "n_references", "n_candidates", "n_train_samples")

Model = TypeVar("Model")


@dataclass(frozen=True)
class SavedModel:
    """What a model file holds.

    Attributes
    ----------
    facts : dict of str to JSON value
    tensors : dict of str to Tensor
    """

    facts: dict[str, Any]
    tensors: dict[str, Tensor]

    @classmethod
    def of(cls, model: Any, *, rows: bool) -> SavedModel:
        """Gather what a fitted model needs to assign new rows."""
        network, references = model.network_, model.references_
        if not rows and network is None:
            raise ConfigError(
                "rows must be True for a model without a network, which assigns new "
                "rows by its reference rows, got False. Train one first: SENet("
                "max_iter=1000)."
            )
        tensors = {"labels": torch.from_numpy(model.labels_)}
        tensors["references.labels"] = torch.from_numpy(references.labels)
        if rows and references.rows is not None:
            tensors["references.rows"] = references.rows
        if model.center_ is not None:
            tensors["center"] = torch.from_numpy(model.center_)
        if network is not None:
            tensors["references.keys"] = references.keys
            for name, weight in network.state_dict().items():
                tensors[f"network.{name}"] = weight
            for name in RECORDED:
                tensors[f"history.{name}"] = torch.from_numpy(model.history_[name])
        names = getattr(model, "feature_names_in_", None)
        facts = {
            "estimator": type(model).__name__,
            "n_features": model.n_features_in_,
            "n_clusters": references.n_clusters,
            "n_iter": model.n_iter_,
            "feature_names": None if names is None else [str(name) for name in names],
            "network": None if network is None else _sizes(network),
            "parameters": _parameters(model),
            "settings": model.settings_,
        }
        return cls(json.loads(json.dumps(facts, default=plain_number)), tensors)


def write_model(model: SavedModel, path: Path) -> None:
    """Write a model; an older file at ``path`` stays until the new one is whole."""
    # What would be refused when it is read must not be written.
    _check_parameters(model.facts["parameters"])
    MODEL.write(path, model.facts, model.tensors)


def read_model(kinds: Sequence[type[Model]], path: Path, device: torch.device) -> Model:
    """Read a model of one of the classes onto a device.

    Raises
    ------
    CheckpointError
        If the file is missing, damaged, of a newer format or no such model.
    """
    with MODEL.reading(path) as contents:
        facts, tensors = contents.facts, contents.tensors
        name = str(facts["estimator"])
        if name not in (known_kinds := {kind.__name__: kind for kind in kinds}):
            raise ValueError(f"it is of {name[:40]!r}")
        for count in ("n_features", "n_clusters"):
            require_count(count, facts[count], advice="")
        require_count("n_iter", facts["n_iter"], least=0, advice="")
        parameters = facts["parameters"]
        made: Any = known_kinds[name]
        known = set(made._get_param_names()) - _NOT_SAVED
        if not isinstance(parameters, dict) or parameters.keys() != known:
            raise TypeError("its settings are not those of a model of this version")
        _check_parameters(parameters)
        if parameters["n_clusters"] != facts["n_clusters"]:
            raise ValueError("it states two numbers of clusters")
        if isinstance(parameters.get("hidden_sizes"), list):
            parameters["hidden_sizes"] = tuple(parameters["hidden_sizes"])
        model = made(**parameters, device=device)
        model.settings_ = dict(facts["settings"])
        model.n_features_in_, model.n_iter_ = facts["n_features"], facts["n_iter"]
        names = _feature_names(facts["feature_names"], facts["n_features"])
        if names is not None:
            model.feature_names_in_ = names
        model.network_ = _network(facts, tensors)
        if "refine" in parameters:
            model.history_ = _history(tensors, model.network_ is not None)
        model.labels_ = _labels(tensors["labels"], facts["n_clusters"])
        model.n_clusters_ = facts["n_clusters"]
        if model.n_clusters_ > len(model.labels_):
            raise ValueError(
                f"{len(model.labels_)} rows have no {model.n_clusters_} clusters"
            )
        model.center_ = _center(tensors.get("center"), facts["n_features"])
        model.references_ = _references(facts, tensors, device)
        problem = model._elastic_net()  # refuses an impossible one
        model._solved_ = None if model.references_.rows is None else problem
        if model.network_ is not None:
            model.network_.to(device)
    found: Model = model
    return found


def _sizes(network: SelfExpressiveNetwork) -> dict[str, Any]:
    config = network.config
    return {
        "hidden_sizes": [int(size) for size in config.hidden_sizes],
        "n_embedding": int(config.n_embedding),
    }


def _parameters(model: Any) -> dict[str, Any]:
    """Return constructor arguments as fitted; they may have been changed since."""
    found = {
        name: value
        for name, value in model.get_params(deep=False).items()
        if name not in _NOT_SAVED
    }
    decided, is_trained = model.settings_, model.network_ is not None
    for name in _DECIDED + (_DECIDED_IN_TRAINING if is_trained else ()):
        if name in found and decided.get(name) is not None:
            found[name] = decided[name]
    if is_trained:
        found |= _sizes(model.network_)
    solved = model._solved_
    found["gamma_scale"] = "absolute" if solved is None else solved.gamma_scale
    if found.get("refine", "auto") is None:
        found["affinity"] = decided["affinity"]
    found["n_clusters"] = model.references_.n_clusters
    return found


def _check_parameters(parameters: dict[str, Any]) -> None:
    """Check settings by the rules that a constructor's arguments are held to."""
    given = {name: value for name, value in parameters.items() if not is_auto(value)}
    require_count("n_clusters", given["n_clusters"], advice="")
    require_choice("gamma_scale", given["gamma_scale"], GAMMA_SCALES)
    require_refine(given.get("refine"))
    if "center" in given:
        require_flag("center", given["center"], advice="")
    for config in (NetworkConfig, TrainConfig, ClusterConfig):
        known = config.__dataclass_fields__.keys() & given.keys()
        if config is TrainConfig and "refine" not in parameters:
            known = known & {"gamma", "l1_ratio"}
        config(**{name: given[name] for name in known})
    for name in _COUNTS:
        if given.get(name) is not None:
            require_count(name, given[name], advice="")


def _network(
    facts: dict[str, Any], tensors: dict[str, Tensor]
) -> SelfExpressiveNetwork | None:
    """Build the network around the stored weights; shapes are checked, not trusted."""
    if facts["network"] is None:
        return None
    sizes = facts["network"]
    config = NetworkConfig(tuple(sizes["hidden_sizes"]), sizes["n_embedding"])
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
        network = SelfExpressiveNetwork(facts["n_features"], config)
    network.load_state_dict(weights, assign=True)
    for name, weight in weights.items():
        _require_numbers(weight, f"the weight {name}")
    return network


def _references(
    facts: dict[str, Any], tensors: dict[str, Tensor], device: torch.device
) -> References:
    labels = _labels(tensors["references.labels"], facts["n_clusters"])
    widths = {"rows": facts["n_features"]}
    if facts["network"] is not None:
        widths["keys"] = facts["network"]["n_embedding"]
    kept: dict[str, Tensor | None] = {"rows": None, "keys": None}
    for name, width in widths.items():
        part = tensors.get(f"references.{name}")
        if part is None:
            continue
        if part.shape != (len(labels), width):
            raise ValueError(f"the reference {name} have shape {tuple(part.shape)}")
        _require_numbers(part, f"the reference {name}")
        kept[name] = part.to(device)
    if kept["rows"] is None and kept["keys"] is None:
        raise ValueError("it has no references")
    references = References(labels, facts["n_clusters"], kept["rows"], kept["keys"])
    return references.with_bases()


def _require_numbers(tensor: Tensor, what: str) -> None:
    is_single = tensor.dtype == torch.float32
    if not (is_single or "rows" in what) or not torch.isfinite(tensor).all():
        raise ValueError(f"{what} must be finite float32 numbers")


def _center(center: Tensor | None, n_features: int) -> NDArray[np.float64] | None:
    if center is None:
        return None
    is_sound = center.dtype == torch.float64 and center.shape == (n_features,)
    if not is_sound or not torch.isfinite(center).all():
        raise ValueError("the centre is not a number for each feature")
    found: NDArray[np.float64] = center.numpy()
    return found


def _history(
    tensors: dict[str, Tensor], is_trained: bool
) -> dict[str, NDArray[np.float64]]:
    if not is_trained:
        return {name: np.empty(0) for name in RECORDED}
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
