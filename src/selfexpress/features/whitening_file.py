"""A fitted ``Whitening`` as one safetensors file with JSON in its header."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from sklearn.utils.validation import check_is_fitted

from selfexpress.errors import CheckpointError, one_line
from selfexpress.files.atomic import replacing
from selfexpress.files.tensor_files import write_tensors

_FORMAT, _VERSION = "selfexpress-whitening", 1
_SWITCHES = ("center", "whiten", "normalize")
_ARRAYS = ("components_", "singular_values_", "explained_", "scale_", "mean_")
# What the parsers called here raise on damage.
_DAMAGE = (SafetensorError, OSError, KeyError, TypeError, ValueError, OverflowError)


def write_components(path: Path, model: Any) -> None:
    """Write what is fitted; an older file stays until the new one is whole."""
    check_is_fitted(model)
    names = getattr(model, "feature_names_in_", None)
    header = {
        "format": _FORMAT,
        "version": _VERSION,
        "settings": {name: bool(getattr(model, name)) for name in _SWITCHES},
        "n_samples": model.n_samples_seen_,
        "feature_names": None if names is None else [str(name) for name in names],
    }
    arrays = {name: np.ascontiguousarray(getattr(model, name)) for name in _ARRAYS}
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    with replacing(path) as target:
        write_tensors(target, tensors, {"selfexpress": json.dumps(header)})


def read_components(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return settings and fitted attributes; they are checked, not trusted.

    Raises
    ------
    CheckpointError
        If the file is missing, damaged, of a newer format or something else.
    """
    try:
        with safe_open(path, framework="np") as file:
            header = json.loads((file.metadata() or {})["selfexpress"])
            arrays = {name: file.get_tensor(name) for name in _ARRAYS}
        return _checked(header, arrays)
    except _DAMAGE as error:
        raise CheckpointError(
            f"{path} must hold the components of a Whitening, but cannot be read: "
            f"{one_line(error)}. Save them again."
        ) from error


def _checked(
    header: Any, arrays: dict[str, NDArray[Any]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    if (header["format"], header["version"]) != (_FORMAT, _VERSION):
        raise ValueError(f"it is {header['format']}, version {header['version']}")
    n_components, n_features = arrays["components_"].shape
    _check_arrays(arrays, n_components, n_features)
    switches = {name: header["settings"][name] for name in _SWITCHES}
    if not all(isinstance(value, bool) for value in switches.values()):
        raise ValueError("settings must be true or false")
    n_samples = header["n_samples"]
    if not isinstance(n_samples, int) or n_samples < 1:
        raise ValueError("n_samples must be a positive integer")
    fitted = arrays | {
        "n_components_": n_components,
        "n_features_in_": n_features,
        "n_samples_seen_": n_samples,
        "_n_features_out": n_components,
    }
    names = header["feature_names"]
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
