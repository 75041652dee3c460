"""From a fitted model to a run: what a report will show, gathered and written."""

from __future__ import annotations

import inspect
import os
import platform
import warnings as python_warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from selfexpress.errors import DataError, one_line
from selfexpress.metrics import distinct, label_array
from selfexpress.report.measure import (
    measure_coefficients,
    measure_graph,
    measure_members,
    measure_scores,
)
from selfexpress.report.planar import planar_map
from selfexpress.report.record import Gallery, Integers, Points, Run, Setting
from selfexpress.report.run_files import LONGEST_TEXT, write_run
from selfexpress.report.samples import shown_samples

# More points than this are no longer told apart on a screen, and the file grows.
_MOST_POINTS = 100_000
_STEPS = 65_535
_N_HOVER_PICTURES = 1000
_LONGEST_SETTING = 200
# A table of clusters and classes must fit into memory, and places into 16 bits.
_MOST_CLASSES = 10_000


def save_run(
    folder: str | os.PathLike[str],
    model: Any,
    *,
    X: Any = None,
    truth: Any = None,
    class_names: Sequence[str] | None = None,
    image_shape: Sequence[int] | None = None,
    title: str = "",
    command: str = "",
    warnings: Sequence[object] = (),
) -> Run:
    """Write what a report shows of a fitted model to a folder.

    The folder holds two files, JSON and arrays. Of the data it keeps the samples that
    the report shows, never all of it; nothing in it can run.

    Parameters
    ----------
    folder : path
        Created if it does not exist; an older run in it is replaced.
    model : SENet, EnSC, SSCOMP or ESC
        Fitted in this session: a model that was loaded has no coefficients.
    X : array-like, Tensor or RowSource of n_samples, optional
        What to show of each sample: the rows that were fitted, or the images that
        they were made from, of shape (n_samples, h, w), (n_samples, h, w, 3) or
        (n_samples, 3, h, w).
    truth : array-like of shape (n_samples,), optional
        True classes; adds scores and the confusion.
    class_names : sequence of str, optional
        Names of the classes 0, 1, ... of ``truth``.
    image_shape : (h, w), (h, w, 3) or (3, h, w), optional
        Says that each row of ``X`` is an image of this shape.
    title : str
        Heading of the report.
    command : str
        How the run was started, for the reader.
    warnings : sequence of str, Warning or warnings.WarningMessage
        What was warned of; see :func:`recorded_warnings`.

    Returns
    -------
    Run

    Raises
    ------
    DataError
        If the model is not fitted, sizes do not fit, or the folder cannot be written.
    """
    given: dict[str, object] = {"title": title, "command": command}
    for name, text in given.items():
        if not isinstance(text, str) or len(text) > LONGEST_TEXT:
            raise DataError(
                f"{name} must be a text of at most {LONGEST_TEXT} characters, got "
                f"{one_line(repr(text))}. Shorten it, or leave it out."
            )
    _require_fitted(model)
    labels = np.asarray(model.labels_, dtype=np.int64)
    asked = getattr(model, "n_clusters_", model.get_params().get("n_clusters", 0))
    n_clusters = max(int(asked), int(labels.max()) + 1)
    classes, names = _classes(truth, class_names, len(labels))
    # Of very many rows a model may cluster a sample and assign the others by it.
    in_graph = np.asarray(getattr(model, "sample_indices_", np.arange(len(labels))))
    points, gallery = _shown(model, labels, n_clusters, in_graph, X, image_shape)
    scores = {}
    if truth is not None:
        scores = measure_scores(
            labels,
            classes,
            coefficients=model.coefficients_,
            affinity=model.affinity_matrix_,
            in_graph=in_graph,
        )
    warned = [warnings] if isinstance(warnings, str) else warnings
    seconds = getattr(model, "timings_", {})
    history = getattr(model, "history_", {})
    eigenvalues = getattr(model, "eigenvalues_", np.empty(0))
    run = Run(
        title=title or f"{len(labels):,} samples in {n_clusters} clusters",
        method=type(model).__name__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command,
        n_features=int(getattr(model, "n_features_in_", 0)),
        n_clusters=n_clusters,
        versions=_versions(),
        settings=settings_of(model),
        seconds={stage: float(took) for stage, took in seconds.items()},
        scores=scores,
        certificate=getattr(model, "settings_", {}).get("certificate", {}),
        class_names=names,
        warnings=tuple(_warning_text(each)[:LONGEST_TEXT] for each in warned),
        labels=labels,
        truth=classes,
        # Of a training that was stopped before its first step nothing can be drawn.
        history={k: np.asarray(v, np.float64) for k, v in history.items() if len(v)},
        points=points,
        coefficients=measure_coefficients(
            model.coefficients_, labels[in_graph], n_clusters
        ),
        graph=measure_graph(model.affinity_matrix_, eigenvalues),
        gallery=gallery,
    )
    write_run(Path(folder), run)
    return run


@contextmanager
def recorded_warnings() -> Iterator[list[python_warnings.WarningMessage]]:
    """Collect the warnings of a ``with`` block, which are shown as they come.

    Yields
    ------
    list of warnings.WarningMessage
        For ``save_run(..., warnings=...)``.
    """
    collected: list[python_warnings.WarningMessage] = []
    with python_warnings.catch_warnings():
        show = python_warnings.showwarning

        def collect(*shown: Any, **options: Any) -> None:
            collected.append(python_warnings.WarningMessage(*shown[:4]))
            show(*shown, **options)

        python_warnings.showwarning = collect
        yield collected


def _require_fitted(model: Any) -> None:
    needed = ("labels_", "coefficients_", "affinity_matrix_", "embedding_")
    missing = [name for name in needed if not hasattr(model, name)]
    if missing:
        raise DataError(
            "A run must be saved of a model fitted in this session, but this "
            f"{type(model).__name__} has no {', '.join(missing)}. Call fit first; a "
            "model file does not keep them."
        )


def _shown(
    model: Any,
    labels: Integers,
    n_clusters: int,
    in_graph: Integers,
    X: Any,
    image_shape: Sequence[int] | None,
) -> tuple[Points, Gallery]:
    """Choose the points and members to show, in the numbers of all samples."""
    embedding = np.asarray(model.embedding_, dtype=np.float64)
    own_labels = labels[in_graph]
    count = 10 if n_clusters <= 20 else 6
    found = measure_members(embedding, own_labels, n_clusters, count)
    members = np.union1d(found.central, found.doubtful)
    members = members[members >= 0]
    order = np.random.default_rng(0).permutation(len(in_graph))
    places = np.union1d(order[:_MOST_POINTS], members)
    points = Points(
        index=in_graph[places],
        plane=np.round(planar_map(embedding[places]) * _STEPS).astype(np.uint16),
        margins=found.margins[places],
    )
    kept = in_graph[np.union1d(order[:_N_HOVER_PICTURES], members)]
    samples = np.empty((0, 0), dtype=np.float32)
    if X is not None:
        n_given = len(X) if hasattr(X, "__len__") else len(np.asarray(X))
        if n_given != len(labels):
            raise DataError(
                f"X must hold the {len(labels)} fitted samples, got {n_given}. Give "
                "the same samples in the same order."
            )
        samples = shown_samples(X, kept, image_shape=image_shape)
    gallery = Gallery(
        central=np.where(found.central >= 0, in_graph[found.central], -1),
        doubtful=np.where(found.doubtful >= 0, in_graph[found.doubtful], -1),
        sample_index=kept[: len(samples)],
        samples=samples,
    )
    return points, gallery


def settings_of(model: Any) -> tuple[Setting, ...]:
    """Return a model's settings beside their defaults, and what "auto" became.

    Whatever else the fit decided and ``settings_`` holds comes after them.
    """
    parameters = inspect.signature(type(model)).parameters
    given = model.get_params(deep=False)
    chosen = {"n_clusters": getattr(model, "n_clusters_", "unknown")}
    chosen |= getattr(model, "settings_", {})
    found = []
    for name, value in given.items():
        text = _setting_text(value)
        if text == "auto" and name in chosen:
            text = f"auto, here {_setting_text(chosen[name])}"
        found.append(Setting(name, text, _setting_text(parameters[name].default)))
    others = [name for name in chosen if name not in given]
    found += [Setting(k, _setting_text(chosen[k]), "found by the fit") for k in others]
    return tuple(found)


def _setting_text(value: Any) -> str:
    if isinstance(value, Mapping):
        value = [f"{name} {_setting_text(each)}" for name, each in value.items()]
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_setting_text, value))[:_LONGEST_SETTING]
    if value is None or isinstance(value, (bool, int, float, str, np.generic)):
        return str(value)[:_LONGEST_SETTING]
    # A device says what it is; other objects only of what kind they are.
    return str(value) if type(value).__module__ == "torch" else type(value).__name__


def _versions() -> dict[str, str]:
    """Return the versions of what a result may depend on, and the kind of machine."""
    from selfexpress import __version__

    versions = {"selfexpress": __version__, "Python": platform.python_version()}
    for name in ("torch", "numpy", "scipy", "scikit-learn"):
        versions[name] = metadata.version(name)
    return versions | {"machine": f"{platform.system()} {platform.machine()}"}


def _warning_text(warning: object) -> str:
    """Return what a warning says, in one line."""
    return " ".join(str(getattr(warning, "message", warning)).split())


def _classes(
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
    if len(values) > _MOST_CLASSES:
        raise DataError(
            f"truth must hold at most {_MOST_CLASSES} different classes, got "
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
