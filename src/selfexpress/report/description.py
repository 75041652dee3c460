"""Settings, software, classes and warnings of a run in words.

Shapes: N samples.
"""

from __future__ import annotations

import inspect
import platform
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import numpy as np

from selfexpress.errors import DataError
from selfexpress.metrics import distinct, label_array
from selfexpress.report.record import Integers, Setting

_LONGEST_TEXT = 200
# A table of clusters and classes must fit into memory, and places into 16 bits.
MOST_CLASSES = 10_000


def settings_of(model: Any) -> tuple[Setting, ...]:
    """Return a model's settings beside their defaults, and what "auto" became."""
    parameters = inspect.signature(type(model)).parameters
    counted = {"n_clusters": getattr(model, "n_clusters_", "unknown")}
    chosen = counted | getattr(model, "settings_", {})
    found = []
    for name, value in model.get_params(deep=False).items():
        text = _setting_text(value)
        if text == "auto" and name in chosen:
            text = f"auto, here {_setting_text(chosen[name])}"
        found.append(Setting(name, text, _setting_text(parameters[name].default)))
    return tuple(found)


def _setting_text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_setting_text(item) for item in value)[:_LONGEST_TEXT]
    if value is None or isinstance(value, (bool, int, float, str, np.generic)):
        return str(value)[:_LONGEST_TEXT]
    # A device says what it is; other objects only of what kind they are.
    is_short = type(value).__module__ == "torch"
    return str(value)[:_LONGEST_TEXT] if is_short else type(value).__name__


def software_versions() -> dict[str, str]:
    """Return the versions of what a result may depend on, and the kind of machine."""
    from selfexpress import __version__

    versions = {"selfexpress": __version__, "Python": platform.python_version()}
    for name in ("torch", "numpy", "scipy", "scikit-learn"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    versions["machine"] = f"{platform.system()} {platform.machine()}"
    return versions


def warning_text(warning: object) -> str:
    """Return what a warning says, in one line."""
    message = getattr(warning, "message", warning)
    return " ".join(str(message).split())


def named_classes(
    truth: Any, class_names: Sequence[str] | None, n_samples: int
) -> tuple[Integers, tuple[str, ...]]:
    """Return the classes as positions among their names."""
    if truth is None:
        return np.empty(0, dtype=np.int64), ()
    given = label_array(truth, "truth")
    if given.shape != (n_samples,):
        raise DataError(
            f"truth must hold one class for each of the {n_samples} fitted samples, "
            f"got {len(given)}. Give the classes of the same samples."
        )
    values, codes = distinct(given, "truth")
    if len(values) > MOST_CLASSES:
        raise DataError(
            f"truth must hold at most {MOST_CLASSES} different classes, got "
            f"{len(values)}. Check that these are classes and not numbers of samples."
        )
    if class_names is None:
        return codes, tuple(str(value) for value in values)
    names = tuple(str(name) for name in class_names)
    is_position = (
        given.dtype.kind in "iu" and values[0] >= 0 and values[-1] < len(names)
    )
    if not is_position:
        raise DataError(
            f"truth must hold positions among the {len(names)} class_names, got "
            f"values from {values[0]} to {values[-1]}. Leave class_names out to use "
            "the values themselves as names."
        )
    return given.astype(np.int64), names
