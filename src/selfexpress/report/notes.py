"""What a reader should know before trusting a run, in plain words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from selfexpress.report.record import Integers, Run
from selfexpress.report.words import number


@dataclass(frozen=True)
class Note:
    """Something to know: what was found, and what one may do about it."""

    text: str
    is_warning: bool = True


# Below this share of an even split a cluster is called small.
_SMALL_SHARE = 0.1
_MOST_BETWEEN = 0.3
_STILL_FALLING = 0.02
_DOUBTFUL_MARGIN = 0.2
_LARGE_PART = 0.2
_MOST_ALIKE = 4


def notes_on(run: Run) -> list[Note]:
    """Return the warnings of the fit, then what the numbers of the run suggest."""
    raised = [Note(text) for text in run.warnings]
    on_graph = (_sampled, _components, _empty_rows, _between)
    checks = (*on_graph, _sizes, _mixed, _split, _training, _doubtful)
    found = [note for check in checks for note in check(run)]
    return raised + found


def _sampled(run: Run) -> list[Note]:
    if run.n_in_graph == len(run.labels):
        return []
    text = (
        f"The graph was built of {number(run.n_in_graph)} of the "
        f"{number(len(run.labels))} samples, which |C|, graph and map show; the others "
        "were named by it."
    )
    return [Note(text, is_warning=False)]


def _components(run: Run) -> list[Note]:
    count = run.graph.n_components
    if count > run.n_clusters:
        return [
            Note(
                f"The graph falls into {number(count)} pieces, more than the "
                f"{run.n_clusters} clusters: some clusters are pieces put together "
                "without evidence. Raise n_nonzero or n_neighbors, or lower l1_ratio."
            )
        ]
    return []


def _empty_rows(run: Run) -> list[Note]:
    count = run.coefficients.n_empty
    if not count:
        return []
    return [
        Note(
            f"{number(count)} of {number(run.n_in_graph)} samples are expressed by no "
            "other one; their cluster is a guess. Raise gamma."
        )
    ]


def _sizes(run: Run) -> list[Note]:
    even = len(run.labels) / run.n_clusters
    small = np.flatnonzero(run.sizes < _SMALL_SHARE * even)
    if not len(small):
        return []
    names = ", ".join(str(cluster) for cluster in small[:10])
    more = " and others" if len(small) > 10 else ""
    return [
        Note(
            f"Less than a tenth of an even share is in cluster {names}{more}. Look at "
            "the members: outliers often gather like this; n_clusters may be too "
            "large."
        )
    ]


def _between(run: Run) -> list[Note]:
    total = run.coefficients.between.sum()
    if not total:
        return []
    share = 1 - np.trace(run.coefficients.between) / total
    if share < _MOST_BETWEEN:
        return []
    return [
        Note(
            f"{share:.0%} of the coefficients' weight joins different clusters. "
            "Clusters overlap, or training was too short."
        )
    ]


def _mixed(run: Run) -> list[Note]:
    """Name the clusters that hold several classes."""
    found = []
    for cluster, counts in enumerate(run.confusion if run.has_truth else ()):
        parts = _large_parts(counts)
        if len(parts) > 1:
            names = _listed([(run.class_names[place], share) for place, share in parts])
            found.append(f"Cluster {cluster} holds several classes: {names}.")
    return _limited(found, f"of {run.n_clusters} clusters hold several classes")


def _split(run: Run) -> list[Note]:
    """Name the classes that lie in several clusters."""
    found = []
    table = run.confusion.T if run.has_truth else ()
    for name, counts in zip(run.class_names, table, strict=True):
        parts = _large_parts(counts)
        if len(parts) > 1:
            names = _listed([(str(place), share) for place, share in parts])
            found.append(f"Class {name} is spread over several clusters: {names}.")
    return _limited(
        found, f"of {len(run.class_names)} classes are spread over several clusters"
    )


def _large_parts(counts: Integers) -> list[tuple[int, float]]:
    """Return places and shares of all that is a fifth or more, largest first."""
    shares = counts / max(1, counts.sum())
    order = np.argsort(-shares, kind="stable")
    return [(int(k), float(shares[k])) for k in order if shares[k] >= _LARGE_PART]


def _listed(parts: list[tuple[str, float]]) -> str:
    return ", ".join(f"{name} ({share:.0%})" for name, share in parts)


def _limited(texts: list[str], summary: str) -> list[Note]:
    """Return a note each of a few, or one note of many."""
    if len(texts) <= _MOST_ALIKE:
        return [Note(text) for text in texts]
    return [Note(f"{len(texts)} {summary}. {texts[0]}")]


def _training(run: Run) -> list[Note]:
    objective = run.history.get("objective")
    if objective is None or len(objective) < 50:
        return []
    tenth = len(objective) // 10
    before = float(objective[-2 * tenth : -tenth].mean())
    last = float(objective[-tenth:].mean())
    if before <= 0 or (before - last) / before < _STILL_FALLING:
        return []
    return [
        Note(
            f"The objective still fell by {(before - last) / before:.0%} over the last "
            "tenth of the training. More steps (max_iter) may help."
        )
    ]


def _doubtful(run: Run) -> list[Note]:
    share = float((run.points.margins < _DOUBTFUL_MARGIN).mean())
    if not share:
        text = "Every sample lies clearly nearer to the centre of its own cluster."
        return [Note(text, is_warning=False)]
    return [
        Note(
            f"{share:.1%} of the samples lie about as near to another cluster's centre "
            f"as to their own (margin below {_DOUBTFUL_MARGIN}).",
            is_warning=share > 0.1,
        )
    ]
