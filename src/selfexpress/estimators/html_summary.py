"""A fitted model as a few lines of HTML for notebooks."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

_MOST_CLUSTERS = 30
_MOST_PLACES = 120
_WIDTH, _HEIGHT = 220, 48

# Colours come from the notebook's own text, so that light and dark both work.
_BOX = (
    "font-family:system-ui,sans-serif;font-size:13px;line-height:1.5;padding:10px 14px;"
    "margin-top:6px;border:1px solid rgba(128,128,128,.4);border-radius:8px;"
    "max-width:640px;overflow-x:auto"
)
_BAR = "display:inline-block;height:.7em;border-radius:2px;background:#4a63d8"
_CELL = "padding:0 10px 0 0;text-align:left;border:0;background:none"


class ShownInNotebooks(BaseEstimator):
    """Adds what a fit found to scikit-learn's picture of an estimator."""

    def _html_repr(self) -> str:
        return f"{super()._html_repr()}{html_summary(self)}"


def html_summary(model: Any) -> str:
    """Return what a fitted model found: rows, clusters, coefficients and time.

    Parameters
    ----------
    model : SENet or EnSC

    Returns
    -------
    str
        HTML without scripts, styled inline; empty for a model that is not fitted.
    """
    if not hasattr(model, "references_"):
        return ""
    n_clusters = model.references_.n_clusters
    sizes = np.bincount(model.labels_, minlength=n_clusters)
    counted = ", counted" if model.n_clusters == "auto" else ""
    head = (
        f"<strong>{type(model).__name__}</strong>: {len(model.labels_):,} rows of "
        f"{model.n_features_in_:,} features in {n_clusters:,} clusters{counted}"
    )
    parts = [f"<div>{head}</div>", _training(model), _certificate(model)]
    parts += [_times(model), _clusters(sizes)]
    return f'<div style="{_BOX}">{"".join(parts)}</div>'


def certificate_text(certificate: Mapping[str, float]) -> str:
    """Say how near coefficients that were solved for are to the optimum."""
    violation, excess, n_judged = (
        certificate[name] for name in ("violation", "excess", "n_judged")
    )
    return (
        f"optimality conditions hold to {violation:.2g}; objective {excess:.2%} above "
        f"the least over all rows, by {n_judged:,.0f} of them"
    )


def _certificate(model: Any) -> str:
    certificate = model.settings_.get("certificate")
    return f"<div>{certificate_text(certificate)}</div>" if certificate else ""


def _training(model: Any) -> str:
    # EnSC has no history, a SENet without a training an empty one.
    history = getattr(model, "history_", {})
    objective = np.asarray(history.get("objective", ()), dtype=np.float64)
    if not len(objective):
        return ""
    text = (
        f"objective {objective[0]:.4g} to {objective[-1]:.4g} in {len(objective):,} "
        "steps"
    )
    return f"<div>{text}</div><div>{_curve(objective, text)}</div>"


def _curve(values: NDArray[np.float64], text: str) -> str:
    """Draw the objective by step, averaged to as many places as are seen."""
    n_places = min(_MOST_PLACES, len(values))
    starts = np.arange(n_places) * len(values) // n_places
    means = np.add.reduceat(values, starts) / np.diff(np.append(starts, len(values)))
    low, high = float(means.min()), float(means.max())
    across = np.linspace(1, _WIDTH - 1, n_places)
    down = _HEIGHT - 2 - (means - low) / ((high - low) or 1) * (_HEIGHT - 4)
    points = " ".join(f"{u:.1f},{v:.1f}" for u, v in zip(across, down, strict=True))
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" '
        f'aria-label="{html.escape(text)}"><polyline points="{points}" fill="none" '
        'stroke="#4a63d8" stroke-width="1.5"/></svg>'
    )


def _times(model: Any) -> str:
    # A model that was loaded has none.
    timings = getattr(model, "timings_", {})
    if not timings:
        return ""
    stages = (f"{html.escape(name)} {value:.1f} s" for name, value in timings.items())
    return f"<div>{', '.join(stages)}</div>"


def _clusters(sizes: NDArray[np.intp]) -> str:
    largest = max(int(sizes.max()), 1)
    lines = [
        f'<tr><th style="{_CELL};font-weight:400">{cluster}</th>'
        f'<td style="{_CELL}">{size:,}</td><td style="{_CELL}">'
        f'<span style="{_BAR};width:{160 * size / largest:.0f}px"></span></td></tr>'
        for cluster, size in enumerate(sizes[:_MOST_CLUSTERS].tolist())
    ]
    table = (
        f'<table style="border:0;margin:4px 0 0;font:inherit">{"".join(lines)}</table>'
    )
    more = len(sizes) - _MOST_CLUSTERS
    rest = f"<div>and {more} more clusters</div>" if more > 0 else ""
    return f"<details><summary>rows by cluster</summary>{table}{rest}</details>"
