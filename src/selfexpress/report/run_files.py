"""A run as a folder of two files: ``run.json`` and ``arrays.npz``.

Files are not trusted: whatever is read is checked before anything is built from it,
and whatever is wrong with it is a :class:`~selfexpress.errors.DataError` of one line.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from selfexpress.errors import DataError, SelfExpressError
from selfexpress.files.atomic import replacing
from selfexpress.files.formats import check_kind, check_unpacked_size
from selfexpress.files.numpy_files import open_npz
from selfexpress.report.record import (
    Array,
    Coefficients,
    Gallery,
    GraphSummary,
    Points,
    Run,
    Setting,
)
from selfexpress.report.run_checks import check_run

FORMAT_VERSION = 1
RUN_FILES = _TEXT_FILE, _ARRAY_FILE = "run.json", "arrays.npz"
_MOST_TEXT_BYTES = 16 * 2**20


def write_run(folder: Path, run: Run) -> None:
    """Write a run; each file appears whole or not at all, the JSON file last.

    Raises
    ------
    DataError
        If the folder cannot be made or written to, or has files of these names that
        are no run.
    """
    require_replaceable(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"{folder} must be a folder for the run, but cannot be made "
            f"({error.strerror}). Choose another place."
        ) from error
    with replacing(folder / _ARRAY_FILE) as target:
        np.savez_compressed(target, **_arrays(run))
    header = {
        "format": "selfexpress-run",
        "version": FORMAT_VERSION,
        "arrays_sha256": _checksum(folder / _ARRAY_FILE),
        **_plain(run),
    }
    text = json.dumps(header, indent=1, ensure_ascii=True)
    with replacing(folder / _TEXT_FILE) as target:
        target.write_text(text + "\n", encoding="utf-8")


def require_replaceable(folder: Path) -> None:
    """Refuse a folder whose files have the names of a run's and are none."""
    taken = [name for name in RUN_FILES if (folder / name).exists()]
    if taken and not is_run(folder):
        raise DataError(
            f"{folder} must be a folder without a {taken[0]} of its own, which would "
            "be replaced, but has one and no run. Choose another place."
        )


def is_run(folder: Path) -> bool:
    """Return whether a folder holds a run, as far as its header tells."""
    try:
        _header(folder / _TEXT_FILE)
    except (OSError, ValueError, SelfExpressError):
        return False
    return True


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
    folder = Path(folder)
    if not (folder / _TEXT_FILE).is_file():
        raise DataError(
            f"{folder} must be a folder that holds a run, but has no {_TEXT_FILE}. "
            "Make one with `selfexpress fit ... --run FOLDER`."
        )
    with _reading(folder):
        header = _header(folder / _TEXT_FILE)
        if _checksum(folder / _ARRAY_FILE) != header["arrays_sha256"]:
            raise ValueError(f"{_ARRAY_FILE} is not the one written with {_TEXT_FILE}")
        run = _build(header, _read_arrays(folder / _ARRAY_FILE, header))
        check_run(run)
    return run


def _plain(run: Run) -> dict[str, Any]:
    """Return what is not an array, in JSON's types."""
    graph, coefficients = run.graph, run.coefficients
    return {
        "title": run.title,
        "method": run.method,
        "created": run.created,
        "command": run.command,
        "n_features": run.n_features,
        "n_clusters": run.n_clusters,
        "versions": run.versions,
        "settings": [asdict(setting) for setting in run.settings],
        # JSON has no infinity and no NaN, which a score of nothing may be.
        "seconds": {k: v for k, v in run.seconds.items() if math.isfinite(v)},
        "scores": {k: v for k, v in run.scores.items() if math.isfinite(v)},
        "class_names": list(run.class_names),
        "warnings": list(run.warnings),
        "history": list(run.history),
        "graph": {
            "n_edges": graph.n_edges,
            "n_isolated": graph.n_isolated,
            "n_components": graph.n_components,
            "component_sizes": list(graph.component_sizes),
        },
        "coefficients": {
            "n_nonzero": coefficients.n_nonzero,
            "n_empty": coefficients.n_empty,
        },
    }


def _arrays(run: Run) -> dict[str, Any]:
    arrays = {
        "labels": run.labels,
        "truth": run.truth,
        "points.index": run.points.index,
        "points.plane": run.points.plane,
        "points.margins": run.points.margins.astype(np.float32),
        "coefficients.picture": run.coefficients.picture.astype(np.float32),
        "coefficients.borders": run.coefficients.borders,
        "coefficients.between": run.coefficients.between,
        "graph.degrees": run.graph.degrees,
        "graph.eigenvalues": run.graph.eigenvalues,
        "gallery.central": run.gallery.central,
        "gallery.doubtful": run.gallery.doubtful,
        "gallery.sample_index": run.gallery.sample_index,
        "gallery.samples": run.gallery.samples,
        **{f"history.{name}": values for name, values in run.history.items()},
    }
    return {name: _compact(values) for name, values in arrays.items()}


def _compact(values: Array) -> Array:
    """Return integers in the narrowest type that holds them."""
    if values.dtype.kind not in "iu" or not values.size:
        return values
    kinds = (np.uint8, np.uint16, np.uint32, np.int64)
    low, high = int(values.min()), int(values.max())
    fitting = (k for k in kinds if np.iinfo(k).min <= low and high <= np.iinfo(k).max)
    return values.astype(next(fitting))


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Turn whatever is wrong with the files into one clear line."""
    try:
        yield
    except SelfExpressError:
        raise
    # Damage shows as any exception at all inside the parsers called here.
    except Exception as error:
        text = f"no {error}" if isinstance(error, KeyError) else str(error)
        reason = " ".join(text.split())[:160] or type(error).__name__
        shown = "".join(sign if sign.isprintable() else "?" for sign in reason)
        raise DataError(
            f"{folder} must hold a run as it was written, but is damaged or something "
            f"else ({shown}). Run the fit again."
        ) from error


def _header(path: Path) -> dict[str, Any]:
    if path.stat().st_size > _MOST_TEXT_BYTES:
        raise ValueError(f"{path.name} is too long")
    header = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    if not isinstance(header, dict) or header.get("format") != "selfexpress-run":
        raise ValueError("the header is not that of a run")
    version = header.get("version")
    if version != FORMAT_VERSION or version is True:
        raise DataError(
            f"The run's format version must be {FORMAT_VERSION}, got "
            f"{str(version)[:20]!r}. Update selfexpress, or run the fit again."
        )
    return header


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")


def _read_arrays(path: Path, header: dict[str, Any]) -> dict[str, Array]:
    history = [f"history.{name}" for name in header["history"]]
    with open_npz(path) as container:
        names = [*_ARRAY_NAMES, *history]
        for name in names:
            check_kind(container.entries[name], "iuf", path)
        check_unpacked_size(sum(container.entries[n].n_bytes for n in names), path)
        return {name: container.read(name) for name in names}


_ARRAY_NAMES = (
    "labels", "truth", "points.index", "points.plane", "points.margins",
    "coefficients.picture", "coefficients.borders", "coefficients.between",
    "graph.degrees", "graph.eigenvalues",
    "gallery.central", "gallery.doubtful", "gallery.sample_index", "gallery.samples",
)  # fmt: skip


def _build(header: dict[str, Any], arrays: dict[str, Array]) -> Run:
    """Put a run together; what it is made of is checked afterwards."""
    graph, coefficients = header["graph"], header["coefficients"]
    return Run(
        **{name: header[name] for name in _TEXTS},
        n_features=header["n_features"],
        n_clusters=header["n_clusters"],
        versions=header["versions"],
        settings=tuple(Setting(**setting) for setting in header["settings"]),
        seconds=header["seconds"],
        scores=header["scores"],
        class_names=tuple(header["class_names"]),
        warnings=tuple(header["warnings"]),
        labels=arrays["labels"],
        truth=arrays["truth"],
        history={name: arrays[f"history.{name}"] for name in header["history"]},
        points=Points(
            arrays["points.index"], arrays["points.plane"], arrays["points.margins"]
        ),
        coefficients=Coefficients(
            arrays["coefficients.picture"],
            arrays["coefficients.borders"],
            arrays["coefficients.between"],
            coefficients["n_nonzero"],
            coefficients["n_empty"],
        ),
        graph=GraphSummary(
            graph["n_edges"],
            graph["n_isolated"],
            graph["n_components"],
            tuple(graph["component_sizes"]),
            arrays["graph.degrees"],
            arrays["graph.eigenvalues"],
        ),
        gallery=Gallery(
            arrays["gallery.central"],
            arrays["gallery.doubtful"],
            arrays["gallery.sample_index"],
            arrays["gallery.samples"],
        ),
    )


_TEXTS = ("title", "method", "created", "command")


def _checksum(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
