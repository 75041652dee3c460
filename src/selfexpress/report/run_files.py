"""A run as one file in a folder, read with every type, shape and range checked.

Shapes as in ``record.py``; G and H are the members in a line of the gallery, L the
steps of the history, E the eigenvalues.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from os import PathLike
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
from safetensors import safe_open

from selfexpress.errors import CheckpointError, DataError
from selfexpress.files.container import DAMAGE, Kind
from selfexpress.report.record import Array, Run

RUN_FILE = "run.selfexpress"
LONGEST_TEXT = 20_000
_MOST_PIXELS = 1024
_MOST_SIDE = 256
_MOST_CELLS = 10**8

_RUN = Kind(
    "selfexpress-run",
    version=3,
    what="a run as it was written",
    advice="Run the fit again.",
)

# Of each array: the kinds of its numbers, its shape, and for positions the least and
# the first that lies outside. Letters are sizes: each stands for one number.
_ARRAYS: dict[str, tuple[str, tuple[str | int, ...], tuple[int, str | int] | None]] = {
    "labels": ("iu", ("N",), (0, "k")),
    "truth": ("iu", ("T",), (0, "c")),
    "points.index": ("iu", ("S",), (0, "N")),
    "points.plane": ("iu", ("S", 2), (0, 65_536)),
    "points.margins": ("f", ("S",), None),
    "coefficients.picture": ("f", ("P", "P"), None),
    "coefficients.borders": ("f", ("k + 1",), None),
    "coefficients.between": ("f", ("k", "k"), None),
    "graph.degrees": ("iu", ("n",), (0, "N + 1")),
    "graph.eigenvalues": ("f", ("E",), None),
    "gallery.central": ("iu", ("k", "G"), (-1, "N")),
    "gallery.doubtful": ("iu", ("k", "H"), (-1, "N")),
    "gallery.sample_index": ("iu", ("M",), (0, "N")),
}


def write_run(folder: Path, run: Run) -> None:
    """Write a run, whole or not at all.

    Raises
    ------
    DataError
        If the folder cannot be made or written to, or has a file of this name that is
        no run.
    """
    require_replaceable(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"{folder} must be a folder for the run, but cannot be made "
            f"({error.strerror}). Choose another place."
        ) from error
    arrays: dict[str, Array] = {}
    _RUN.write(folder / RUN_FILE, _facts_of(run, "", arrays), arrays)


def require_replaceable(folder: Path) -> None:
    """Refuse a folder whose file has the name of a run's and is none."""
    if (folder / RUN_FILE).exists() and not is_run(folder):
        raise DataError(
            f"{folder} must be a folder without a {RUN_FILE} of its own, which would "
            "be replaced, but has one and no run. Choose another place."
        )


def is_run(folder: Path) -> bool:
    """Return whether a folder holds a run, as far as its header says."""
    try:
        with safe_open(folder / RUN_FILE, framework="np") as file:
            facts = json.loads(file.metadata()["selfexpress"])
        return bool(facts["format"] == _RUN.name)
    except DAMAGE:
        return False


def read_run(folder: str | PathLike[str]) -> Run:
    """Read and check a run.

    Parameters
    ----------
    folder : str or path-like

    Raises
    ------
    DataError
        If the folder holds no run, or one that is damaged or of another format.
    """
    path = Path(folder) / RUN_FILE
    if not path.is_file():
        raise DataError(
            f"{folder} must be a folder that holds a run, but has no {RUN_FILE}. "
            "Make one with `selfexpress fit ... --run FOLDER`."
        )
    try:
        with _RUN.reading(path) as contents:
            arrays = {name: each.numpy() for name, each in contents.tensors.items()}
            run: Run = _built(Run, contents.facts, "", arrays)
            _check(run, arrays)
    except CheckpointError as error:
        raise DataError(str(error)) from error
    return run


def _facts_of(value: Any, path: str, arrays: dict[str, Array]) -> Any:
    """Return a record as values of JSON; its arrays go to ``arrays`` by their path."""
    if isinstance(value, np.ndarray):
        arrays[path] = np.ascontiguousarray(_compact(value))
        return None
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, dict):
        stem = f"{path}." if path else ""
        return {k: _facts_of(each, f"{stem}{k}", arrays) for k, each in value.items()}
    if isinstance(value, tuple):
        return [_facts_of(each, path, arrays) for each in value]
    return value


def _compact(values: Array) -> Array:
    """Return integers in the narrowest type that holds them."""
    if values.dtype.kind not in "iu" or not values.size:
        return values
    low, high = int(values.min()), int(values.max())
    kinds = [np.iinfo(kind) for kind in (np.uint8, np.int16, np.int32, np.int64)]
    return values.astype(next(k for k in kinds if k.min <= low and high <= k.max).dtype)


def _built(hint: Any, value: Any, path: str, arrays: dict[str, Array]) -> Any:
    """Return a value of JSON, with the arrays below its path, as what the hint says."""
    stem = f"{path}." if path else ""
    origin, items = get_origin(hint), get_args(hint)
    if origin is np.ndarray:
        return arrays[path]
    if isinstance(hint, type) and is_dataclass(hint):
        hints = get_type_hints(hint).items()
        parts = {k: _built(each, value[k], stem + k, arrays) for k, each in hints}
        return hint(**parts)
    if origin is tuple:
        _require(isinstance(value, list), f"{path} is no list")
        return tuple(_built(items[0], each, path, arrays) for each in value)
    if origin is dict:
        return {str(k): _built(items[1], v, stem + k, arrays) for k, v in value.items()}
    _require(_IS_SIMPLE[hint](value), f"{path} is no {hint.__name__} of a run")
    return value


_IS_SIMPLE: dict[Any, Callable[[Any], bool]] = {
    str: lambda value: isinstance(value, str) and len(value) <= LONGEST_TEXT,
    int: lambda value: type(value) is int and 0 <= value < 2**53,
    float: lambda value: type(value) in (int, float) and math.isfinite(value),
}


def _check(run: Run, arrays: dict[str, Array]) -> None:
    """Raise ValueError unless the arrays of a run fit together."""
    n_classes = max(1, len(run.class_names))
    is_table = 0 < run.n_clusters < 65_536 and run.n_clusters * n_classes <= _MOST_CELLS
    _require(is_table, "there are no or too many clusters")
    sizes: dict[str | int, int] = {
        "N": len(run.labels), "N + 1": len(run.labels) + 1, "c": n_classes,
        "k": run.n_clusters, "k + 1": run.n_clusters + 1,
    }  # fmt: skip
    history = {f"history.{name}": ("f", ("L",), None) for name in run.history}
    for name, (kinds, shape, span) in (_ARRAYS | history).items():
        values = arrays[name]
        is_kind = values.dtype.kind in kinds and values.ndim == len(shape)
        _require(is_kind, f"{name} has another type or shape")
        for letter, size in zip(shape, values.shape, strict=True):
            expected = letter if type(letter) is int else sizes.setdefault(letter, size)
            _require(size == expected, f"{name} has another shape")
        if span is None:
            _require(bool(np.isfinite(values).all()), f"{name} is not finite")
        else:
            least, outside = span[0], sizes.get(span[1], span[1])
            is_inside = (
                least <= values.min(initial=0) and values.max(initial=0) < outside
            )
            _require(bool(is_inside), f"{name} reaches outside")
    has_samples = 0 < sizes["n"] <= sizes["N"] and sizes["T"] in (0, sizes["N"])
    _require(has_samples and sizes.get("L") != 0, "something is empty, or too long")
    _require(0 < sizes["P"] <= _MOST_PIXELS, "the picture of |C| is too large")
    for index in (run.points.index, run.gallery.sample_index):
        is_ascending = (np.diff(index.astype(np.int64)) > 0).all()
        _require(bool(is_ascending), "samples are not in order")
    borders, found = run.coefficients.borders, run.coefficients
    is_ordered = (np.diff(borders) >= 0).all() and abs(borders[-1] - 1) < 1e-6
    _require(bool(is_ordered and borders[0] == 0), "the borders are not in order")
    is_positive = found.picture.min() >= 0 and found.between.min() >= 0
    _require(bool(is_positive), "|C| is negative somewhere")
    _check_gallery(run)


def _check_gallery(run: Run) -> None:
    gallery, samples = run.gallery, run.gallery.samples
    for members in (gallery.central, gallery.doubtful):
        shown = np.isin(members[members >= 0], run.points.index)
        _require(bool(shown.all()), "a member is not among the points")
    _require(len(samples) == len(gallery.sample_index), "there are other samples")
    if gallery.has_pictures:
        is_small = 0 < min(samples.shape[1:3]) <= max(samples.shape[1:3]) <= _MOST_SIDE
        is_kind = samples.dtype == np.uint8 and samples.shape[3:] in ((), (3,))
        _require(is_small and is_kind, "the pictures have no usable shape")
    else:
        is_kind = samples.dtype.kind == "f" and samples.ndim == 2
        _require(is_kind, "the rows have another type or shape")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
