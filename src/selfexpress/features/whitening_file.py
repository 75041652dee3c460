"""A fitted ``Whitening`` as one safetensors file with JSON in its header."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from selfexpress.files.container import Kind

COMPONENTS = Kind(
    "selfexpress-whitening",
    version=1,
    what="the components of a Whitening",
    advice="Save them again.",
)
_SWITCHES = ("center", "whiten", "normalize")
_ARRAYS = ("components_", "singular_values_", "explained_", "scale_", "mean_")


def write_components(path: Path, model: Any) -> None:
    """Write what is fitted; an older file stays until the new one is whole."""
    check_is_fitted(model)
    names = getattr(model, "feature_names_in_", None)
    facts = {
        "settings": {name: bool(getattr(model, name)) for name in _SWITCHES},
        "n_samples": model.n_samples_seen_,
        "feature_names": None if names is None else [str(name) for name in names],
    }
    COMPONENTS.write(path, facts, {name: getattr(model, name) for name in _ARRAYS})


def read_components(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return settings and fitted attributes; they are checked, not trusted.

    Raises
    ------
    CheckpointError
        If the file is missing, damaged, of another version or something else.
    """
    with COMPONENTS.reading(path) as contents:
        arrays = {name: contents.tensors[name].numpy() for name in _ARRAYS}
        return _checked(contents.facts, arrays)


def _checked(
    facts: dict[str, Any], arrays: dict[str, NDArray[Any]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    n_components, n_features = arrays["components_"].shape
    _check_arrays(arrays, n_components, n_features)
    switches = {name: facts["settings"][name] for name in _SWITCHES}
    if not all(isinstance(value, bool) for value in switches.values()):
        raise ValueError("settings must be true or false")
    n_samples = facts["n_samples"]
    if not isinstance(n_samples, int) or n_samples < 1:
        raise ValueError("n_samples must be a positive integer")
    fitted = arrays | {
        "n_components_": n_components,
        "n_features_in_": n_features,
        "n_samples_seen_": n_samples,
        "_n_features_out": n_components,
    }
    names = facts["feature_names"]
    if names is not None:
        if len(names) != n_features or not all(isinstance(name, str) for name in names):
            raise ValueError("feature_names must name every feature")
        fitted["feature_names_in_"] = np.array(names, dtype=object)
    return {"n_components": n_components, **switches}, fitted


def _check_arrays(
    arrays: dict[str, NDArray[Any]], n_components: int, n_features: int
) -> None:
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(_ARRAYS, (n_components,))
    shapes |= {"components_": (n_components, n_features), "mean_": (n_features,)}
    for name, array in arrays.items():
        if array.shape != shapes[name] or array.size == 0:
            raise ValueError(f"{name} has the shape {array.shape}")
        if array.dtype != np.float64 or not np.isfinite(array).all():
            raise ValueError(f"{name} must be finite float64 numbers")
    if (arrays["scale_"] < 0).any():
        raise ValueError("scale_ must not be negative")
