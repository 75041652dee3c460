"""Sections of a report about what the model found: |C| and the affinity graph."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from selfexpress.report.charts import bar_chart
from selfexpress.report.markup import Markup, element, number
from selfexpress.report.palette import ramp
from selfexpress.report.png import Pixels, png_address
from selfexpress.report.record import Floats, Run
from selfexpress.report.sections import details, section, share_bar, table

_LEAST_BAND = 0.02
_N_BINS = 24


def coefficients(run: Run) -> Markup:
    """Return |C| sorted by cluster, as a picture and as sums."""
    found = run.coefficients
    own = np.diag(found.between)
    total = found.between.sum()
    inside = own.sum() / total if total else 0.0
    text = (
        f"{inside:.1%} of the weight of |C| lies within clusters; a sample is "
        f"expressed by {number(found.n_nonzero / run.n_in_graph)} others on average."
    )
    hint = (
        "Rows and columns are samples, sorted by cluster; bright means that the row's "
        "sample is expressed by the column's. Good clusters are bright squares on the "
        "diagonal, with darkness around."
    )
    figure = element(
        "figure",
        element("div", _picture(run, f"Picture of |C|. {text}"), _borders(run),
                class_="heat"),
        element("figcaption", text),
    )  # fmt: skip
    both = element("div", figure, _inside_table(run), class_="columns")
    return section(
        "coefficients", "Coefficients", element("p", hint, class_="hint"), both
    )


def _picture(run: Run, text: str) -> Markup:
    pixels = tone(run.coefficients.picture)
    side = len(pixels)
    return element("img", src=png_address(pixels, palette=ramp(256)), alt=text,
                   width=side, height=side)  # fmt: skip


def tone(picture: Floats) -> Pixels:
    """Return a picture's values as 256 steps in which small ones still show.

    Square roots of the values, the brightest 1 % of those that are not zero cut off.
    """
    shown = picture[picture > 0]
    top = float(np.quantile(shown, 0.99)) if shown.size else 1.0
    pixels: Pixels = np.round(255 * np.sqrt(np.clip(picture / top, 0, 1))).astype(
        np.uint8
    )
    return pixels


def _borders(run: Run) -> Markup:
    """Draw the clusters' borders and numbers over the picture."""
    borders = 100 * run.coefficients.borders
    lines = []
    for at in borders[1:-1]:
        place = f"{at:.2f}"
        lines.append(element("line", x1=place, x2=place, y1=0, y2=100))
        lines.append(element("line", y1=place, y2=place, x1=0, x2=100))
    svg = element("svg", *lines, viewBox="0 0 100 100", aria_hidden="true",
                  preserveAspectRatio="none")  # fmt: skip
    names = [
        element("span", str(cluster), style=f"top:{(first + last) / 2:.2f}%")
        for cluster, (first, last) in enumerate(pairwise(borders))
        if last - first > 100 * _LEAST_BAND
    ]
    ticks = element("div", *names, class_="ticks", aria_hidden="true")
    return element("div", svg, ticks, class_="borders")


def _inside_table(run: Run) -> Markup:
    between = run.coefficients.between
    totals = between.sum(axis=1)
    rows = []
    for cluster, total in enumerate(totals):
        share = between[cluster, cluster] / total if total else 0.0
        others = between[cluster].copy()
        others[cluster] = -1
        other = int(others.argmax())
        has_other = others[other] > 0
        text = f"{other} ({others[other] / total:.1%})" if has_other else "none"
        rows.append([str(cluster), share_bar(share), text])
    body = table(
        ["cluster", "expressed by itself", "next by"],
        rows,
        caption="Where each cluster's coefficients lie",
    )
    return body if run.n_clusters <= 20 else details("By cluster", body)


def graph(run: Run) -> Markup:
    """Return the affinity graph's degrees, components and eigenvalues."""
    found = run.graph
    degrees = found.degrees
    rows = [
        ["edges", number(found.n_edges)],
        ["connected components", number(found.n_components)],
        ["samples without an edge", number(found.n_isolated)],
        ["neighbours of a sample, median", number(float(np.median(degrees)))],
        ["neighbours of a sample, mean", number(float(degrees.mean()))],
        ["neighbours of a sample, least and most",
         f"{number(degrees.min())} to {number(degrees.max())}"],
        ["largest components", ", ".join(number(n) for n in found.component_sizes)],
    ]  # fmt: skip
    numbers = table(["property", "value"], rows, caption="The graph in numbers")
    return section(
        "graph",
        "Affinity graph",
        element("p", _graph_text(run), class_="hint"),
        element("div", numbers, _degrees(run), *_eigenvalues(run), class_="figures"),
    )


def _graph_text(run: Run) -> str:
    count = run.graph.n_components
    pieces = "is in one piece" if count == 1 else f"falls into {number(count)} pieces"
    advice = (
        "fewer than the clusters, so that clusters are cut out of larger pieces"
        if count < run.n_clusters
        else "as many as the clusters"
        if count == run.n_clusters
        else "more than the clusters, so that some clusters are pieces put together"
    )
    return f"The graph that was clustered {pieces}, {advice}."


def _degrees(run: Run) -> Markup:
    degrees = run.graph.degrees.astype(np.int64)
    low, high = int(degrees.min()), int(degrees.max())
    width = max(1, -(-(high - low + 1) // _N_BINS))
    counts = np.bincount((degrees - low) // width)
    starts = [low + width * k for k in range(len(counts))]
    names = [number(start) for start in starts]
    common = starts[int(counts.argmax())]
    until = f" to {number(common + width - 1)}" if width > 1 else ""
    text = (
        f"Samples by their number of neighbours, from {number(low)} to {number(high)}; "
        f"most often {number(common)}{until}."
    )
    chart = bar_chart(counts.tolist(), names, description=text, x_label="neighbours")
    caption = element("figcaption", element("strong", "Degrees"), " ", text)
    return element("figure", chart, caption)


def _eigenvalues(run: Run) -> list[Markup]:
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
    chart = bar_chart(
        values.tolist(), names, description=text, x_label="eigenvalue number"
    )
    caption = element("figcaption", element("strong", "Eigenvalues"), " ", text)
    return [element("figure", chart, caption)]
