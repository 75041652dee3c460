"""Whether what was read as a run is one: every type, shape and range."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from selfexpress.report.record import Array, Run

LONGEST_TEXT = 20_000
_MOST_PIXELS = 1024
_MOST_SIDE = 256
_MOST_CELLS = 10**8


def check_run(run: Run) -> None:
    """Raise ValueError or TypeError unless every part of a run is sound.

    The message is a fragment for a sentence that names the folder.
    """
    _check_texts(run)
    _check_numbers(run)
    _check_samples(run)
    _check_coefficients(run)
    _check_gallery(run)
    for name, values in run.history.items():
        _require_array(values, f"the history of {name}", "f", (len(values),))
    lengths = {len(values) for values in run.history.values()}
    _require(len(lengths) <= 1 and 0 not in lengths, "the history has no one length")


def _check_texts(run: Run) -> None:
    texts: list[Any] = [run.title, run.method, run.created, run.command]
    texts += [*run.class_names, *run.warnings, *run.history]
    texts += [*run.versions, *_texts_of(run.versions)]
    for setting in run.settings:
        texts += [setting.name, setting.value, setting.default]
    for text in texts:
        is_short = isinstance(text, str) and len(text) <= LONGEST_TEXT
        _require(is_short, "a text is none, or too long")


def _texts_of(mapping: Any) -> list[Any]:
    _require(isinstance(mapping, dict), "the versions are no table")
    return list(mapping.values())


def _check_numbers(run: Run) -> None:
    graph, coefficients = run.graph, run.coefficients
    _require_counts(
        [
            run.n_features,
            graph.n_edges,
            graph.n_isolated,
            graph.n_components,
            *graph.component_sizes,
            coefficients.n_nonzero,
            coefficients.n_empty,
        ]
    )
    for table in (run.seconds, run.scores):
        _require(isinstance(table, dict), "the seconds or scores are no table")
        for value in table.values():
            is_number = type(value) in (int, float) and math.isfinite(value)
            _require(is_number, "a score is no number")


def _require_counts(values: Iterable[Any]) -> None:
    for value in values:
        is_count = type(value) is int and 0 <= value < 2**53
        _require(is_count, "a count is no whole number")


def _check_samples(run: Run) -> None:
    n_samples = len(run.labels)
    _require(type(run.n_clusters) is int and run.n_clusters > 0, "there is no cluster")
    is_table = run.n_clusters * max(1, len(run.class_names)) <= _MOST_CELLS
    _require(is_table and run.n_clusters < 65_536, "there are too many clusters")
    _require(n_samples > 0, "there is no sample")
    _require_places(run.labels, "the labels", run.n_clusters, (n_samples,))
    _require(run.truth.shape in ((0,), (n_samples,)), "the truth has another length")
    _require_places(run.truth, "the truth", len(run.class_names), run.truth.shape)
    shown = (len(run.points.index),)
    _require_places(run.points.index, "the points", n_samples, shown)
    _require(run.points.plane.shape == (*shown, 2), "the points are not on a plane")
    _require_places(run.points.plane, "the plane", 65_536, (*shown, 2))
    is_ascending = bool((np.diff(run.points.index.astype(np.int64)) > 0).all())
    _require(is_ascending, "the points are not in order")
    _require_array(run.points.margins, "the margins", "f", shown)
    in_graph = (run.n_in_graph,)
    _require(0 < run.n_in_graph <= n_samples, "the graph has other samples")
    _require_places(run.graph.degrees, "the degrees", n_samples + 1, in_graph)
    eigenvalues = run.graph.eigenvalues
    _require_array(eigenvalues, "the eigenvalues", "f", (len(eigenvalues),))


def _check_coefficients(run: Run) -> None:
    found, k = run.coefficients, run.n_clusters
    side = len(found.picture)
    _require(0 < side <= _MOST_PIXELS, "the picture of |C| is too large")
    _require_array(found.picture, "the picture of |C|", "f", (side, side))
    _require_array(found.borders, "the borders", "f", (k + 1,))
    is_ordered = bool((np.diff(found.borders) >= 0).all())
    is_inside = found.borders[0] == 0 and abs(found.borders[-1] - 1) < 1e-6
    _require(is_ordered and is_inside, "the borders are not in order")
    _require_array(found.between, "the sums of |C|", "f", (k, k))
    is_positive = found.picture.min() >= 0 and found.between.min() >= 0
    _require(bool(is_positive), "|C| is negative somewhere")


def _check_gallery(run: Run) -> None:
    gallery, n_samples = run.gallery, len(run.labels)
    for members in (gallery.central, gallery.doubtful):
        _require(members.ndim == 2 and len(members) == run.n_clusters, "no gallery")
        is_inside = -1 <= members.min(initial=0) <= members.max(initial=0) < n_samples
        is_whole = members.dtype.kind in "iu"
        _require(bool(is_inside) and is_whole, "a member is no sample")
        shown = np.isin(members[members >= 0], run.points.index)
        _require(bool(shown.all()), "a member is not among the points")
    kept = gallery.sample_index
    is_ascending = bool((np.diff(kept.astype(np.int64)) > 0).all())
    _require(is_ascending, "the samples kept are not in order")
    _require_places(kept, "the samples kept", n_samples, (len(kept),))
    samples = gallery.samples
    _require(len(samples) == len(kept), "samples and their places differ in number")
    if not gallery.has_pictures:
        _require_array(samples, "the rows", "f", samples.shape[:2], finite=False)
        return
    is_picture = samples.dtype == np.uint8 and samples.shape[3:] in ((), (3,))
    is_small = min(samples.shape[1:3]) > 0 and max(samples.shape[1:3]) <= _MOST_SIDE
    _require(is_picture and is_small, "the pictures have no usable shape")


def _require_places(
    values: Array, what: str, count: int, shape: tuple[int, ...]
) -> None:
    """Refuse what are not whole numbers from 0 to below ``count``."""
    _require(values.dtype.kind in "iu" and values.shape == shape, f"{what}: no places")
    is_inside = 0 <= values.min(initial=0) <= values.max(initial=0) < max(count, 1)
    _require(bool(is_inside), f"{what} reach outside")


def _require_array(
    values: Array, what: str, kinds: str, shape: tuple[int, ...], *, finite: bool = True
) -> None:
    is_array = values.dtype.kind in kinds and values.shape == shape
    _require(is_array, f"{what}: shape or type is wrong")
    _require(not finite or bool(np.isfinite(values).all()), f"{what}: not finite")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
