"""Subspace clustering that learns a function instead of a matrix."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selfexpress.datasets.loading import load_dataset
    from selfexpress.datasets.synthetic import make_subspaces
    from selfexpress.estimators.ensc import EnSC
    from selfexpress.estimators.esc import ESC
    from selfexpress.estimators.gap import objective_gap
    from selfexpress.estimators.senet import SENet
    from selfexpress.estimators.ssc_omp import SSCOMP
    from selfexpress.rows.opening import open_rows

__version__ = "0.1.0"

__all__ = [
    "ESC",
    "SSCOMP",
    "EnSC",
    "SENet",
    "__version__",
    "load_dataset",
    "make_subspaces",
    "objective_gap",
    "open_rows",
]

# Imported when they are asked for: the command line must not wait for torch to print
# its help.
_HOMES = {
    "ESC": "selfexpress.estimators.esc",
    "SSCOMP": "selfexpress.estimators.ssc_omp",
    "EnSC": "selfexpress.estimators.ensc",
    "SENet": "selfexpress.estimators.senet",
    "load_dataset": "selfexpress.datasets.loading",
    "make_subspaces": "selfexpress.datasets.synthetic",
    "objective_gap": "selfexpress.estimators.gap",
    "open_rows": "selfexpress.rows.opening",
}
_ROOMS = ("datasets", "features", "metrics", "report")


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _ROOMS:
        return importlib.import_module(f"selfexpress.{name}")
    raise AttributeError(f"module 'selfexpress' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__, *_ROOMS]
