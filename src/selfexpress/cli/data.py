"""``selfexpress data``: list the data sets, fetch them, say where they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selfexpress.cli.options import Json
from selfexpress.errors import DataError

if TYPE_CHECKING:
    from selfexpress.datasets.locations import Location
    from selfexpress.datasets.registry import DatasetSpec

app = typer.Typer(
    help="List, fetch and find real data sets.\n\nExample: selfexpress data list",
    no_args_is_help=True,
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Data set's name.")]
RootOption = Annotated[
    Path | None,
    typer.Option("--root", help="Look and download here instead of the usual places."),
]


@app.command("list")
def list_datasets(root: RootOption = None, as_json: Json = False) -> None:
    """List the data sets: samples, classes, shape, splits, and where they are.

    Example: selfexpress data list
    """
    from selfexpress.datasets.loading import available

    entries = [_describe(spec, root) for spec in available()]
    if as_json:
        typer.echo(json.dumps(entries, indent=2))
        return
    header = ("name", "samples", "classes", "shape", "splits", "folder")
    lines = [header, *(_columns(entry) for entry in entries)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


@app.command("fetch")
def fetch_dataset(
    name: NameArgument, root: RootOption = None, as_json: Json = False
) -> None:
    """Download a data set unless it is there, verify it, and print its folder.

    Example: selfexpress data fetch mnist
    """
    from selfexpress.datasets.loading import fetch, load_dataset

    location = fetch(name, root=root)
    load_dataset(name, root=root, download=False)
    _print_location(name, location, as_json=as_json)


@app.command("where")
def where_dataset(
    name: NameArgument, root: RootOption = None, as_json: Json = False
) -> None:
    """Print the folder that holds a data set.

    Example: selfexpress data where mnist --json
    """
    from selfexpress.datasets.loading import locate

    _print_location(name, locate(name, root=root), as_json=as_json)


def _describe(spec: DatasetSpec, root: Path | None) -> dict[str, Any]:
    """Return what is known of a data set as plain JSON values."""
    from selfexpress.datasets.loading import locate

    try:
        folder = str(locate(spec.name, root=root).folder)
    except DataError:
        folder = None
    return {
        "name": spec.name,
        "title": spec.title,
        "n_samples": spec.n_samples,
        "n_classes": len(spec.class_names) or None,
        "shape": list(spec.sample_shape) or None,
        "splits": list(spec.splits),
        "folder": folder,
        "home": spec.home,
        "citation": spec.citation,
    }


def _columns(entry: dict[str, Any]) -> tuple[str, ...]:
    """Return one line of the listing."""
    return (
        entry["name"],
        str(entry["n_samples"]),
        str(entry["n_classes"] or "varies"),
        "x".join(map(str, entry["shape"] or ["varies"])),
        "/".join(entry["splits"]),
        entry["folder"] or "not found",
    )


def _print_location(name: str, location: Location, *, as_json: bool) -> None:
    """Print the folder, or all that is known of it."""
    facts = {
        "name": name,
        "folder": str(location.folder),
        "layout": location.layout.reader,
        "files": [str(path) for path in location.files],
    }
    typer.echo(json.dumps(facts, indent=2) if as_json else location.folder)
