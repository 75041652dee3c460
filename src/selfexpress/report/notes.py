"""What a reader should know before trusting a run, in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from selfexpress.report.record import Integers, Run
from selfexpress.report.words import number

# Below this share of an even split a cluster is called small.
_SMALL_SHARE = 0.1
_MOST_BETWEEN = 0.3
_STILL_FALLING = 0.02
_DOUBTFUL_MARGIN = 0.2
_LARGE_PART = 0.2
_MOST_ALIKE = 4
_MUCH_MISSED = 0.1
_OR_SHORT = ", or training was too short"


@dataclass(frozen=True)
class Note:
    """Something to know: what was found, and what one may do about it."""

    text: str
    is_warning: bool = True


def notes_on(run: Run) -> list[Note]:
    """Return the warnings of the fit, then what the numbers of the run suggest."""
    checks = (_graph, _sizes, _classes, _training, _candidates, _doubtful)
    found = [note for check in checks for note in check(run)]
    return [*map(Note, run.warnings), *found]


def _graph(run: Run) -> Iterator[Note]:
    if run.n_in_graph < len(run.labels):
        yield Note(
            f"The graph was built of {number(run.n_in_graph)} of the "
            f"{number(len(run.labels))} samples, which |C|, graph and map show; the "
            "others were assigned by it.",
            is_warning=False,
        )
    if run.graph.n_components > run.n_clusters:
        yield Note(
            f"The graph falls into {number(run.graph.n_components)} pieces, more than "
            f"the {run.n_clusters} clusters: some clusters are pieces put together "
            "without evidence. Raise n_nonzero or n_neighbors, or lower l1_ratio."
        )
    if n_empty := run.coefficients.n_empty:
        yield Note(
            f"{number(n_empty)} of {number(run.n_in_graph)} samples are expressed by "
            "no other one; their cluster is a guess. Raise gamma."
        )
    between = 1 - run.coefficients.inside
    if between >= _MOST_BETWEEN and run.coefficients.between.any():
        yield Note(
            f"{between:.0%} of the coefficients' weight joins different clusters. "
            f"Clusters overlap{_OR_SHORT if run.history else ''}."
        )


def _sizes(run: Run) -> Iterator[Note]:
    even = len(run.labels) / run.n_clusters
    small = np.flatnonzero(run.sizes < _SMALL_SHARE * even)
    if len(small):
        names = ", ".join(map(str, small[:10])) + " and others" * (len(small) > 10)
        yield Note(
            f"Less than a tenth of an even share is in cluster {names}. Look at the "
            "members: outliers often gather like this; n_clusters may be too large."
        )


def _classes(run: Run) -> Iterator[Note]:
    """Yield which clusters hold several classes, and which classes are spread out."""
    if not run.has_truth:
        return
    clusters = list(map(str, range(run.n_clusters)))
    yield from _alike(
        [
            f"Cluster {cluster} holds several classes: {parts}."
            for cluster, parts in _mixed(clusters, run.confusion, run.class_names)
        ],
        f"of {run.n_clusters} clusters hold several classes",
    )
    yield from _alike(
        [
            f"Class {name} is spread over several clusters: {parts}."
            for name, parts in _mixed(run.class_names, run.confusion.T, clusters)
        ],
        f"of {len(run.class_names)} classes are spread over several clusters",
    )


def _mixed(
    names: Sequence[str], table: Integers, others: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield what has two or more parts of a fifth or more, and these, largest first."""
    for name, counts in zip(names, table, strict=True):
        shares = counts / max(1, counts.sum())
        order = np.argsort(-shares, kind="stable")
        parts = [
            f"{others[k]} ({shares[k]:.0%})" for k in order if shares[k] >= _LARGE_PART
        ]
        if len(parts) > 1:
            yield name, ", ".join(parts)


def _alike(texts: list[str], summary: str) -> list[Note]:
    """Return a note each of a few, or one note of many."""
    if len(texts) <= _MOST_ALIKE:
        return [Note(text) for text in texts]
    return [Note(f"{len(texts)} {summary}. {texts[0]}")]


def _training(run: Run) -> Iterator[Note]:
    objective = run.history.get("objective", np.empty(0))
    if len(objective) < 50:
        return
    tenth = len(objective) // 10
    before = float(objective[-2 * tenth : -tenth].mean())
    fall = (before - float(objective[-tenth:].mean())) / before if before > 0 else 0.0
    if fall >= _STILL_FALLING:
        yield Note(
            f"The objective still fell by {fall:.0%} over the last tenth of the "
            "training. More steps (max_iter) may help."
        )


def _candidates(run: Run) -> Iterator[Note]:
    excess = run.certificate.get("excess", 0.0)
    if excess >= _MUCH_MISSED:
        yield Note(
            f"The objective is {excess:.0%} above the least that coefficients on all "
            "rows, not only those most alike, would reach. This is usual for text and "
            "images; where clusters are subspaces that cross, EnSC(n_candidates=None) "
            "may do better.",
            is_warning=False,
        )


def _doubtful(run: Run) -> Iterator[Note]:
    share = float((run.points.margins < _DOUBTFUL_MARGIN).mean())
    if share:
        yield Note(
            f"{share:.1%} of the samples lie about as near to another cluster's centre "
            f"as to their own (margin below {_DOUBTFUL_MARGIN}).",
            is_warning=share > 0.1,
        )
    else:
        yield Note(
            "Every sample lies clearly nearer to the centre of its own cluster.",
            is_warning=False,
        )
