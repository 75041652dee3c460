"""From a fitted model to a run: what a report will show, gathered and written."""

from __future__ import annotations

import os
import warnings as python_warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from selfexpress.errors import DataError, one_line
from selfexpress.report.description import (
    named_classes,
    settings_of,
    software_versions,
    warning_text,
)
from selfexpress.report.measure import (
    measure_coefficients,
    measure_graph,
    measure_scores,
)
from selfexpress.report.members import (
    central_members,
    doubtful_members,
    membership,
)
from selfexpress.report.planar import planar_map
from selfexpress.report.record import Array, Gallery, Integers, Points, Run
from selfexpress.report.run_checks import LONGEST_TEXT
from selfexpress.report.run_files import write_run
from selfexpress.report.samples import n_samples_of, shown_samples

# More points than this are no longer told apart on a screen, and the file grows.
_MOST_POINTS = 100_000
_STEPS = 65_535
_N_HOVER_PICTURES = 1000


class FittedClusterer(Protocol):
    """What a model must have after ``fit`` to be reported on."""

    labels_: Any
    coefficients_: sparse.csr_array
    affinity_matrix_: sparse.csr_array
    embedding_: Any

    def get_params(self, deep: bool = ...) -> dict[str, Any]:
        """Return the constructor's arguments."""
        ...


def save_run(
    folder: str | os.PathLike[str],
    model: FittedClusterer,
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
    _require_texts(title=title, command=command)
    if isinstance(warnings, str):
        warnings = [warnings]
    run = _gather(
        model,
        X=X,
        truth=truth,
        class_names=class_names,
        image_shape=image_shape,
        title=title,
        command=command,
        warnings=warnings,
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

        def collect(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: Any = None,
            line: str | None = None,
        ) -> None:
            collected.append(
                python_warnings.WarningMessage(message, category, filename, lineno)
            )
            show(message, category, filename, lineno, file, line)

        python_warnings.showwarning = collect
        yield collected


def _gather(
    model: FittedClusterer,
    *,
    X: Any,
    truth: Any,
    class_names: Sequence[str] | None,
    image_shape: Sequence[int] | None,
    title: str,
    command: str,
    warnings: Sequence[object],
) -> Run:
    _require_fitted(model)
    labels = np.asarray(model.labels_, dtype=np.int64)
    n_clusters = _n_clusters(model, labels)
    classes, names = named_classes(truth, class_names, len(labels))
    # Of very many rows a model may cluster a sample and name the others by it.
    in_graph = np.asarray(getattr(model, "sample_indices_", np.arange(len(labels))))
    matrix, affinity = model.coefficients_, model.affinity_matrix_
    points, gallery = _shown(model, labels, in_graph, X=X, image_shape=image_shape)
    history = getattr(model, "history_", {})
    return Run(
        title=title or f"{len(labels):,} samples in {n_clusters} clusters",
        method=type(model).__name__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command,
        n_features=int(getattr(model, "n_features_in_", 0)),
        n_clusters=n_clusters,
        versions=software_versions(),
        settings=settings_of(model),
        seconds={k: float(v) for k, v in getattr(model, "timings_", {}).items()},
        scores={}
        if truth is None
        else measure_scores(
            labels,
            classes,
            coefficients=matrix,
            affinity=affinity,
            in_graph=in_graph,
        ),
        class_names=names,
        warnings=tuple(warning_text(each)[:LONGEST_TEXT] for each in warnings),
        labels=labels,
        truth=classes,
        # Of a training that was stopped before its first step nothing can be drawn.
        history={
            k: np.asarray(v, dtype=np.float64) for k, v in history.items() if len(v)
        },
        points=points,
        coefficients=measure_coefficients(matrix, labels[in_graph], n_clusters),
        graph=measure_graph(affinity, getattr(model, "eigenvalues_", np.empty(0))),
        gallery=gallery,
    )


def _require_texts(**texts: object) -> None:
    for name, text in texts.items():
        if not isinstance(text, str) or len(text) > LONGEST_TEXT:
            raise DataError(
                f"{name} must be a text of at most {LONGEST_TEXT} characters, got "
                f"{one_line(repr(text))}. Shorten it, or leave it out."
            )


def _require_fitted(model: FittedClusterer) -> None:
    needed = ("labels_", "coefficients_", "affinity_matrix_", "embedding_")
    missing = [name for name in needed if not hasattr(model, name)]
    if missing:
        raise DataError(
            "A run must be saved of a model fitted in this session, but this "
            f"{type(model).__name__} has no {', '.join(missing)}. Call fit first; a "
            "model file does not keep them."
        )


def _n_clusters(model: FittedClusterer, labels: Integers) -> int:
    asked = getattr(model, "n_clusters_", model.get_params().get("n_clusters", 0))
    return max(int(asked), int(labels.max()) + 1)


def _shown(
    model: FittedClusterer,
    labels: Integers,
    in_graph: Integers,
    *,
    X: Any,
    image_shape: Sequence[int] | None,
) -> tuple[Points, Gallery]:
    """Choose the points and members to show, in the numbers of all samples."""
    embedding = np.asarray(model.embedding_, dtype=np.float64)
    n_clusters = _n_clusters(model, labels)
    own_labels = labels[in_graph]
    found = membership(embedding, own_labels, n_clusters)
    count = 10 if n_clusters <= 20 else 6
    central = central_members(found, own_labels, n_clusters, count)
    doubtful = doubtful_members(found, own_labels, n_clusters, count)
    members = np.unique(np.concatenate([central.ravel(), doubtful.ravel()]))
    members = members[members >= 0]
    order = np.random.default_rng(0).permutation(len(in_graph))
    places = np.union1d(order[:_MOST_POINTS], members)
    points = Points(
        index=in_graph[places],
        plane=np.round(planar_map(embedding[places]) * _STEPS).astype(np.uint16),
        margins=found.margins[places],
    )
    kept = in_graph[np.union1d(order[:_N_HOVER_PICTURES], members)]
    samples = _samples(X, kept, len(labels), image_shape=image_shape)
    gallery = Gallery(
        central=np.where(central >= 0, in_graph[central], -1),
        doubtful=np.where(doubtful >= 0, in_graph[doubtful], -1),
        sample_index=kept[: len(samples)],
        samples=samples,
    )
    return points, gallery


def _samples(
    X: Any, index: Integers, n_samples: int, *, image_shape: Sequence[int] | None
) -> Array:
    if X is None:
        return np.empty((0, 0), dtype=np.float32)
    if n_samples_of(X) != n_samples:
        raise DataError(
            f"X must hold the {n_samples} fitted samples, got {n_samples_of(X)}. Give "
            "the same samples in the same order."
        )
    return shown_samples(X, index, image_shape=image_shape)
