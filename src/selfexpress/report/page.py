"""One HTML file that holds a whole report and asks the network for nothing."""

from __future__ import annotations

import base64
import hashlib
import os
from importlib import resources
from pathlib import Path

from selfexpress.files.atomic import replacing
from selfexpress.report import sections, sections_model, sections_samples
from selfexpress.report.markup import Markup, element, join
from selfexpress.report.record import Run
from selfexpress.report.run_files import read_run

# Identifier, name in the navigation, function.
_PARTS = (
    ("overview", "Scores", sections.overview),
    ("notes", "Notes", sections.notes),
    ("map", "Map", sections_samples.scatter),
    ("gallery", "Members", sections_samples.gallery),
    ("sizes", "Sizes", sections_samples.sizes),
    ("confusion", "Classes", sections_samples.confusion),
    ("coefficients", "|C|", sections_model.coefficients),
    ("graph", "Graph", sections_model.graph),
    ("training", "Training", sections.training),
    ("time", "Time", sections.time),
    ("settings", "Settings", sections.settings),
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
    parts = [part for part in _PARTS if part[0] != "confusion" or run.has_truth]
    links = [
        element("li", element("a", title, href=f"#{name}")) for name, title, _ in parts
    ]
    body = [
        element("a", "Skip to the report", href="#report", class_="skip"),
        _header(run),
        element("nav", element("ul", *links), aria_label="Sections"),
        element("main", *(build(run) for _, _, build in parts), id="report",
                tabindex=-1),
        _footer(run),
    ]  # fmt: skip
    scripts = [_asset("page.js"), _asset("scatter.js")]
    head = _head(run, scripts)
    tail = [Markup(f"<script>{script}</script>") for script in scripts]
    page = element("html", element("head", *head), element("body", *body, *tail),
                   lang="en")  # fmt: skip
    return "<!doctype html>\n" + page + "\n"


def _head(run: Run, scripts: list[str]) -> list[Markup]:
    # The browser itself keeps the promise: no address but data, no script but ours.
    allowed = " ".join(_script_hash(script) for script in scripts)
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src {allowed}; base-uri 'none'; form-action 'none'"
    )
    return [
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{run.title} - selfexpress report"),
        # An empty picture: without it browsers ask for a favicon.
        element("link", rel="icon", href="data:,"),
        Markup(f"<style>{_asset('report.css')}</style>"),
    ]


def _script_hash(script: str) -> str:
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _asset(name: str) -> str:
    folder = resources.files("selfexpress.report") / "page"
    return (folder / name).read_text(encoding="utf-8")


def _header(run: Run) -> Markup:
    when = run.created.replace("T", " ").replace("+00:00", " UTC")
    return element(
        "header",
        element("div",
                element("p", "selfexpress report", class_="eyebrow"),
                element("h1", run.title),
                element("p", f"{run.method}, {when}", class_="hint")),
        element("button", "Dark", type="button", id="theme", hidden=True,
                aria_pressed="false"),
    )  # fmt: skip


def _footer(run: Run) -> Markup:
    version = run.versions.get("selfexpress", "")
    text = f"Made by selfexpress {version}. This file is complete: it loads nothing."
    return element("footer", join([element("p", text)]))
