"""One HTML file that holds a whole report and asks the network for nothing.

The measures of a run become the variables of one template, ``page/report.html``.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import re
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from selfexpress.estimators.html_summary import certificate_text
from selfexpress.files.atomic import replacing
from selfexpress.report.charts import Chart, bar_chart, line_chart, sparkline
from selfexpress.report.notes import notes_on
from selfexpress.report.pictures import (
    base64_text,
    blend,
    group_colours,
    heat_address,
    png_address,
    sprite_sheet,
)
from selfexpress.report.record import Integers, Run
from selfexpress.report.run_files import read_run
from selfexpress.report.words import number, seconds

if TYPE_CHECKING:
    from jinja2 import Environment

_LESS = "less is better"
# Name in the record, short name, what it says.
_SCORES = {
    "accuracy": ("Accuracy", "samples in the right cluster, best matching"),
    "normalized_mutual_info": ("NMI", "mutual information, normalised"),
    "adjusted_rand": ("ARI", "agreement on pairs, beyond chance"),
    "subspace_preserving_error": ("SRE", f"coefficients on wrong classes; {_LESS}"),
    "graph_error": ("Wrong edges", f"edge weight between classes; {_LESS}"),
    "connectivity": ("CONN", "connectivity of the weakest class"),
}
# Names in the history, title of the chart.
_CURVES = (
    (("objective", "penalty"), "Objective and its penalty"),
    (("reconstruction",), "Reconstruction error"),
    (("learning_rate",), "Learning rate"),
    (("threshold",), "Threshold below which a coefficient is zero"),
)
_N_CLEAR_STEPS = 8
_SHEET_COLUMNS = 40
_MOST_CLUSTERS_SHOWN = 60
_MOST_IN_CONFUSION = 40
_SHORT_NAME = 5
_LEAST_BAND = 0.02
_N_BINS = 24

# Control characters and halves of surrogate pairs cannot stand in HTML; overrides of
# the writing direction could make a text read as another one.
_UNFIT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def write_report(
    run: Run | str | os.PathLike[str], path: str | os.PathLike[str]
) -> None:
    """Write a run as one HTML file, which opens in any browser without a network.

    Parameters
    ----------
    run : Run or path
        What :func:`~selfexpress.report.save_run` returned, or the folder it wrote.
    path : path
        The HTML file; an older one is replaced once the new one is whole.

    Raises
    ------
    DataError
        If the folder holds no sound run, or the file cannot be written.
    """
    record = run if isinstance(run, Run) else read_run(Path(run))
    text = report_html(record)
    with replacing(Path(path)) as target:
        target.write_text(text, encoding="utf-8")


def report_html(run: Run) -> str:
    """Return the report of a run as HTML."""
    from markupsafe import Markup

    script, style = (_asset(f"report.{suffix}") for suffix in ("js", "css"))
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    page = (
        _templates()
        .get_template("report.html")
        .render(
            run=run,
            script=Markup(script),
            script_hash=f"sha256-{base64.b64encode(digest).decode('ascii')}",
            style=Markup(style),
            **_measures(run),
        )
    )
    return page.strip() + "\n"


def _asset(name: str) -> str:
    folder = resources.files("selfexpress.report") / "page"
    return (folder / name).read_text(encoding="utf-8")


@functools.cache
def _templates() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    templates = Environment(
        loader=FunctionLoader(_asset),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_printable,
    )
    templates.filters |= {"number": number, "seconds": seconds}
    templates.policies["json.dumps_kwargs"] = {
        "allow_nan": False,
        "separators": (",", ":"),
    }
    return templates


def _printable(value: Any) -> Any:
    """Replace what a page cannot hold; the template's own markup is left alone."""
    return _UNFIT.sub("\ufffd", value) if type(value) is str else value


def _measures(run: Run) -> dict[str, Any]:
    """Return what the template shows beside the run itself."""
    total = sum(run.seconds.values())
    legends = _legends(run)
    return {
        "scores": [
            (name, run.scores[key], meaning)
            for key, (name, meaning) in _SCORES.items()
            if key in run.scores
        ],
        "notes": notes_on(run),
        "colours": group_colours(run.n_clusters),
        "legends": legends,
        "map_data": _map_data(run, legends),
        "gallery": _gallery(run),
        "sizes": list(enumerate(run.sizes.tolist())),
        "confusion": _confusion(run) if run.has_truth else {},
        "heat": _heat(run),
        "graph": _graph(run),
        "training": _training(run),
        "certificate": certificate_text(run.certificate) if run.certificate else "",
        "time": [
            *(
                (stage, took, took / (total or 1))
                for stage, took in run.seconds.items()
            ),
            ("all", total, 1),
        ],
        "settings": {
            "changed": [each for each in run.settings if each.value != each.default],
            "same": [each for each in run.settings if each.value == each.default],
        },
    }


def _legends(run: Run) -> list[dict[str, Any]]:
    """Return groups of points by one of their properties: name, colour, size."""

    def legend(mode: str, title: str, *groups: Any) -> dict[str, Any]:
        return {"mode": mode, "title": title, "groups": list(zip(*groups, strict=True))}

    k, n_classes = run.n_clusters, len(run.class_names)
    found = [legend("cluster", "Cluster", range(k), group_colours(k), run.sizes)]
    if run.has_truth:
        sizes = np.bincount(run.truth, minlength=n_classes)
        colours = group_colours(n_classes)
        n_wrong = int((run.matched[run.labels] != run.truth).sum())
        found += [
            legend("class", "True class", run.class_names, colours, sizes),
            legend("agreement", "Agreement with the truth", ("agrees", "differs"),
                   ("#3f8fd2", "#e0482f"), (len(run.labels) - n_wrong, n_wrong)),
        ]  # fmt: skip
    # From doubtful, orange, to clear, blue.
    step = _margin_bytes(run).astype(np.int64) * _N_CLEAR_STEPS >> 8
    limits = [f"{at / _N_CLEAR_STEPS:.2f}" for at in range(_N_CLEAR_STEPS + 1)]
    names = [f"{low} to {high}" for low, high in pairwise(limits)]
    counts = np.bincount(step, minlength=_N_CLEAR_STEPS)
    colours = blend(45, 260, _N_CLEAR_STEPS)
    return [*found, legend("margin", "How clear", names, colours, counts)]


def _margin_bytes(run: Run) -> Integers:
    return np.round(255 * np.clip(run.points.margins, 0, 1)).astype(np.uint8)


def _map_data(run: Run, legends: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the script of the map draws."""
    index = run.points.index
    data: dict[str, Any] = {
        "plane": base64_text(run.points.plane.astype(np.uint16)),
        "index": base64_text(index.astype(np.uint32)),
        "labels": base64_text(run.labels[index].astype(np.uint16)),
        "margins": base64_text(_margin_bytes(run)),
        "colours": {
            each["mode"]: [c for _, c, _ in each["groups"]] for each in legends
        },
        "class_names": list(run.class_names),
    }
    if run.has_truth:
        data["truth"] = base64_text(run.truth[index].astype(np.uint16))
        data["matched"] = run.matched.tolist()
    if run.gallery.has_pictures and len(run.gallery.samples):
        pictures = run.gallery.samples
        data["pictures"] = {
            "sheet": png_address(sprite_sheet(pictures, _SHEET_COLUMNS)),
            "index": base64_text(run.gallery.sample_index.astype(np.uint32)),
            "columns": _SHEET_COLUMNS,
            "height": pictures.shape[1],
            "width": pictures.shape[2],
        }
    return data


def _gallery(run: Run) -> dict[str, Any]:
    """Return the most central and the most doubtful members of each cluster."""
    gallery = run.gallery
    clusters = [
        {
            "number": cluster,
            "about": f"{number(run.sizes[cluster])} samples{_majority(run, cluster)}",
            "central": _members(run, gallery.central[cluster]),
            "doubtful": _members(run, gallery.doubtful[cluster]),
        }
        for cluster in range(min(run.n_clusters, _MOST_CLUSTERS_SHOWN))
        if run.sizes[cluster]
    ]
    height, width = gallery.samples.shape[1:3] if gallery.has_pictures else (0, 0)
    return {
        "clusters": clusters,
        "n_left_out": max(0, run.n_clusters - _MOST_CLUSTERS_SHOWN),
        "is_wide": any(len(name) > _SHORT_NAME for name in run.class_names),
        "height": height,
        "width": width,
    }


def _majority(run: Run, cluster: int) -> str:
    if not run.has_truth:
        return ""
    counts = run.confusion[cluster]
    best = int(counts.argmax())
    share = counts[best] / max(1, counts.sum())
    return f", {share:.1%} of class {run.class_names[best]}"


def _members(run: Run, members: Integers) -> list[dict[str, Any]]:
    return [_member(run, int(sample)) for sample in members if sample >= 0]


def _member(run: Run, sample: int) -> dict[str, Any]:
    """Return a sample with a picture's address, or the points of a line."""
    gallery = run.gallery
    text, tag, is_odd = f"Sample {number(sample)}", number(sample), False
    if run.has_truth:
        true = int(run.truth[sample])
        tag = run.class_names[true]
        text += f", class {tag}"
        is_odd = true != int(run.confusion[run.labels[sample]].argmax())
    point = int(np.searchsorted(run.points.index, sample))
    text += f", margin {float(run.points.margins[point]):.2f}"
    picture = line = ""
    if sample in gallery.sample_index:
        values = gallery.samples[np.searchsorted(gallery.sample_index, sample)]
        if gallery.has_pictures:
            picture = png_address(values)
        else:
            line = sparkline(values)
    member = {"sample": sample, "text": text, "tag": tag, "is_odd": is_odd}
    return member | {"picture": picture, "line": line}


def _confusion(run: Run) -> dict[str, Any]:
    """Return clusters against classes, the matched ones on the diagonal."""
    pairs = sorted((int(c), k) for k, c in enumerate(run.matched) if c >= 0)
    rows, columns = [k for _, k in pairs], [c for c, _ in pairs]
    rows += sorted(set(range(run.n_clusters)) - set(rows))
    columns += sorted(set(range(len(run.class_names))) - set(columns))
    counts = run.confusion[np.ix_(rows, columns)]
    names = [run.class_names[c] for c in columns]
    most = _MOST_IN_CONFUSION
    shares = 100 * np.sqrt(counts / (counts[:most, :most].max() or 1))
    off = counts.copy()
    np.fill_diagonal(off, 0)
    largest = np.argsort(off, axis=None)[::-1][:5]
    places = [np.unravel_index(flat, off.shape) for flat in largest]
    return {
        "n_matched": int(np.trace(counts)),
        "is_cut": max(counts.shape) > most,
        "most": most,
        "names": names[:most],
        "rows": [
            {
                "place": place,
                "cluster": rows[place],
                "cells": list(zip(line.tolist(), share.round(1), strict=True))[:most],
            }
            for place, (line, share) in enumerate(zip(counts, shares, strict=True))
        ][:most],
        "mistakes": [
            (int(off[row, column]), names[column], rows[row])
            for row, column in places
            if off[row, column]
        ],
    }


def _heat(run: Run) -> dict[str, Any]:
    """Return |C| as a picture with the clusters' borders, and as sums."""
    found = run.coefficients
    rows = []
    for cluster, weights in enumerate(found.between):
        total = weights.sum() or 1.0
        others = weights.copy()
        others[cluster] = 0
        other = int(others.argmax())
        text = f"{other} ({others[other] / total:.1%})" if others[other] else "none"
        rows.append((cluster, weights[cluster] / total, text))
    borders = 100 * found.borders
    return {
        "picture": heat_address(found.picture),
        "side": len(found.picture),
        "borders": borders[1:-1].round(2).tolist(),
        "ticks": [
            (cluster, round((first + last) / 2, 2))
            for cluster, (first, last) in enumerate(pairwise(borders))
            if last - first > 100 * _LEAST_BAND
        ],
        "rows": rows,
    }


def _graph(run: Run) -> dict[str, Any]:
    found, degrees = run.graph, run.graph.degrees
    count = found.n_components
    pieces = "is in one piece" if count == 1 else f"falls into {number(count)} pieces"
    if count < run.n_clusters:
        advice = (
            "fewer than the clusters, so that clusters are cut out of larger pieces"
        )
    elif count == run.n_clusters:
        advice = "as many as the clusters"
    else:
        advice = "more than the clusters, so that some clusters are pieces put together"
    return {
        "pieces": f"{pieces}, {advice}",
        "rows": [
            ("edges", number(found.n_edges)),
            ("connected components", number(count)),
            ("samples without an edge", number(found.n_isolated)),
            ("neighbours of a sample, median", number(float(np.median(degrees)))),
            ("neighbours of a sample, mean", number(float(degrees.mean()))),
            ("neighbours of a sample, least and most",
             f"{number(degrees.min())} to {number(degrees.max())}"),
            ("largest components", ", ".join(map(number, found.component_sizes))),
        ],
        "charts": [_degrees(run), *_eigenvalues(run)],
    }  # fmt: skip


def _degrees(run: Run) -> Chart:
    degrees = run.graph.degrees.astype(np.int64)
    low, high = int(degrees.min()), int(degrees.max())
    width = max(1, -(-(high - low + 1) // _N_BINS))
    counts = np.bincount((degrees - low) // width)
    starts = [low + width * k for k in range(len(counts))]
    common = starts[int(counts.argmax())]
    until = f" to {number(common + width - 1)}" if width > 1 else ""
    text = (
        f"Samples by their number of neighbours, from {number(low)} to {number(high)}; "
        f"most often {number(common)}{until}."
    )
    names = list(map(number, starts))
    return bar_chart("Degrees", text, counts.tolist(), names, "neighbours")


def _eigenvalues(run: Run) -> list[Chart]:
    # What is left of a zero after rounding would be shown with digits it has not.
    values = np.where(run.graph.eigenvalues < 1e-9, 0, run.graph.eigenvalues)
    if not len(values):
        return []
    text = (
        f"The {len(values)} smallest eigenvalues of the normalised Laplacian, from "
        f"{number(values[0])} to {number(values[-1])}; a value near 0 is a group that "
        "is nearly cut off."
    )
    names = [str(place) for place in range(1, len(values) + 1)]
    heights = values.tolist()
    return [bar_chart("Eigenvalues", text, heights, names, "eigenvalue number")]


def _training(run: Run) -> dict[str, Any]:
    """Return the learning curves; nothing for a method that does not train."""
    charts = []
    for names, title in _CURVES:
        if not all(name in run.history for name in names):
            continue
        first = run.history[names[0]]
        text = (
            f"from {number(first[0])} to {number(first[-1])} in {number(len(first))} "
            f"steps, smallest {number(first.min())}."
        )
        series = {name.replace("_", " "): run.history[name] for name in names}
        charts.append(line_chart(title, text, series, may_be_log=len(names) > 1))
    if not charts:
        return {}
    length = len(next(iter(run.history.values())))
    steps = sorted({round(k * (length - 1) / 10) for k in range(11)})
    return {
        "charts": charts,
        "headings": ["step", *(name.replace("_", " ") for name in run.history)],
        "rows": [
            (step + 1, *(number(values[step], 4) for values in run.history.values()))
            for step in steps
        ],
    }
