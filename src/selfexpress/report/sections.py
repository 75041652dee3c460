"""Sections of a report about the run itself: scores, notes, time, settings."""

from __future__ import annotations

from collections.abc import Iterable

from selfexpress.report.charts import line_chart
from selfexpress.report.markup import Child, Markup, element, join, number, seconds
from selfexpress.report.notes import notes_on
from selfexpress.report.record import Run

# Name in the record, short name, what it says, whether more is better.
_SCORES = {
    "accuracy": ("Accuracy", "samples in the right cluster, best matching", True),
    "normalized_mutual_info": ("NMI", "mutual information, normalised", True),
    "adjusted_rand": ("ARI", "agreement on pairs, beyond chance", True),
    "subspace_preserving_error": ("SRE", "coefficients on wrong classes", False),
    "graph_error": ("Wrong edges", "edge weight between classes", False),
    "connectivity": ("CONN", "connectivity of the weakest class", True),
}

# Name in the history, title, description of the chart.
_CURVES = (
    (("objective", "penalty"), "Objective and its penalty"),
    (("reconstruction",), "Reconstruction error"),
    (("learning_rate",), "Learning rate"),
    (("threshold",), "Threshold below which a coefficient is zero"),
)


def section(name: str, title: str, *children: Child) -> Markup:
    """Return a section under a heading, which names it to screen readers."""
    heading = element("h2", title, id=f"{name}-title")
    return element("section", heading, *children, id=name,
                   aria_labelledby=f"{name}-title")  # fmt: skip


def table(
    headings: Iterable[str], rows: Iterable[Iterable[Child]], *, caption: str
) -> Markup:
    """Return a table whose first column names the rows, in a box that scrolls."""
    head = element("tr", *(element("th", name, scope="col") for name in headings))
    body = []
    for first, *rest in (list(row) for row in rows):
        cells = [element("th", first, scope="row")]
        cells += [element("td", cell) for cell in rest]
        body.append(element("tr", *cells))
    return scrolling(
        element("table", element("caption", caption), element("thead", head),
                element("tbody", *body)),
        label=caption,
    )  # fmt: skip


def scrolling(content: Markup, *, label: str) -> Markup:
    """Return a box that scrolls sideways and can be reached with the keyboard."""
    return element("div", content, class_="scroll", tabindex=0, role="region",
                   aria_label=label)  # fmt: skip


def details(summary: str, *children: Child) -> Markup:
    """Return content that opens on demand."""
    return element("details", element("summary", summary), *children)


def overview(run: Run) -> Markup:
    """Return the numbers a reader looks for first."""
    total = sum(run.seconds.values())
    facts = [
        (number(len(run.labels)), "samples", f"of {number(run.n_features)} features"),
        (number(run.n_clusters), "clusters", f"found by {run.method}"),
        (seconds(total), "to fit", "all stages together"),
    ]
    scores = [
        (f"{run.scores[key]:.3f}", name, meaning + ("" if up else "; less is better"))
        for key, (name, meaning, up) in _SCORES.items()
        if key in run.scores
    ]
    cards = [element("dl", *(_card(*fact) for fact in facts), class_="cards")]
    if scores:
        shown = (_card(*score, is_score=True) for score in scores)
        cards.insert(0, element("dl", *shown, class_="cards"))
    return section(
        "overview",
        "At a glance",
        *cards,
        _score_note(run),
    )


def _card(value: str, name: str, meaning: str, *, is_score: bool = False) -> Markup:
    return element(
        "div",
        element("dt", name),
        element("dd", element("span", value, class_="value"),
                element("span", meaning, class_="meaning")),
        class_="card score" if is_score else "card",
    )  # fmt: skip


def _score_note(run: Run) -> Markup:
    if run.has_truth:
        return element(
            "p",
            "Scores compare the clusters with the true classes, which the fit did not "
            "see.",
            class_="hint",
        )
    return element(
        "p",
        "The true classes are not known, so there are no scores. Judge by the map, "
        "the gallery and |C|.",
        class_="hint",
    )


def notes(run: Run) -> Markup:
    """Return warnings and findings in plain words."""
    found = notes_on(run)
    n_warnings = sum(note.is_warning for note in found)
    entries = []
    for note in found:
        mark = "Warning" if note.is_warning else "Note"
        label = element("strong", f"{mark}: ")
        name = "note warning" if note.is_warning else "note"
        entries.append(element("li", label, note.text, class_=name))
    calm = [] if n_warnings else [element("p", "Nothing suspicious was found.")]
    return section(
        "notes", "What to know", *calm, element("ul", *entries, class_="notes")
    )


def training(run: Run) -> Markup:
    """Return the learning curves."""
    curves = []
    for names, title in _CURVES:
        if not all(name in run.history for name in names):
            continue
        series = {name.replace("_", " "): run.history[name] for name in names}
        first = run.history[names[0]]
        text = (
            f"from {number(first[0])} to {number(first[-1])} in {number(len(first))} "
            f"steps, smallest {number(first.min())}."
        )
        chart = line_chart(
            series,
            description=f"{title} by training step: {text}",
            x_label="training step",
            may_be_log=len(names) > 1,
        )
        caption = element("figcaption", element("strong", title), " ", text)
        curves.append(element("figure", chart, caption))
    if not curves:
        text = f"{run.method} solves for the coefficients; nothing is trained."
        return section("training", "Training", element("p", text))
    return section(
        "training",
        "Training",
        element("div", *curves, class_="figures"),
        _history_table(run),
    )


def _history_table(run: Run) -> Markup:
    names = list(run.history)
    length = len(next(iter(run.history.values())))
    steps = sorted({round(k * (length - 1) / 10) for k in range(11)})
    rows = [
        [str(step + 1), *(number(run.history[name][step], 4) for name in names)]
        for step in steps
    ]
    headings = ["step", *(name.replace("_", " ") for name in names)]
    return details(
        "Numbers behind the curves",
        table(headings, rows, caption="Training history at a few steps"),
    )


def time(run: Run) -> Markup:
    """Return the seconds by stage as bars."""
    total = sum(run.seconds.values()) or 1.0
    rows = [
        [stage, seconds(value), share_bar(value / total)]
        for stage, value in run.seconds.items()
    ]
    rows.append(["all", seconds(sum(run.seconds.values())), ""])
    return section("time", "Time", table(["stage", "took", "share"], rows,
                                         caption="Seconds by stage"))  # fmt: skip


def share_bar(share: float, *, colour: str | None = None) -> Markup:
    """Return a share as a bar with its percentage."""
    percent = f"{100 * share:.1f}%"
    style = f"width:{max(0.0, min(1.0, share)) * 100:.2f}%"
    if colour:
        style += f";background:{colour}"
    bar = element("span", element("span", style=style), class_="share-bar")
    return join([bar, element("span", percent, class_="share-text")])


def settings(run: Run) -> Markup:
    """Return settings, versions and the command."""
    changed = [
        [element("code", setting.name), setting.value, setting.default]
        for setting in run.settings
        if setting.value != setting.default
    ]
    same = [
        [element("code", setting.name), setting.value]
        for setting in run.settings
        if setting.value == setting.default
    ]
    versions = [[name, version] for name, version in run.versions.items()]
    command = (
        [element("h3", "Command"), element("pre", element("code", run.command),
                                           tabindex=0)]
        if run.command
        else []
    )  # fmt: skip
    return section(
        "settings",
        "Settings",
        *command,
        element(
            "div",
            table(["setting", "value", "default"], changed, caption="Changed settings"),
            table(["software", "version"], versions, caption="Software and machine"),
            class_="columns",
        ),
        details(
            f"{len(same)} settings left at their defaults",
            table(["setting", "value"], same, caption="Settings at their defaults"),
        ),
    )
