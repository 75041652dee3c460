"""``selfexpress data``: list the data sets, fetch them, say where they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from selfexpress.datasets.loading import available, fetch, load_dataset, locate
from selfexpress.datasets.locations import Location
from selfexpress.datasets.specification import DatasetSpec
from selfexpress.errors import DataError

app = typer.Typer(
    help="List, fetch and find real data sets.\n\nExample: selfexpress data list",
    no_args_is_help=True,
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Data set's name.")]
RootOption = Annotated[
    Path | None,
    typer.Option("--root", help="Look and download here instead of the usual places."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_datasets(root: RootOption = None, as_json: JsonOption = False) -> None:
    """List the data sets: samples, classes, shape, splits, and where they are.

    Example: selfexpress data list
    """
    entries = [_describe(spec, root) for spec in available()]
    if as_json:
        typer.echo(json.dumps(entries, indent=2))
        return
    header = ("name", "samples", "classes", "shape", "splits", "folder")
    lines = [header, *(_columns(entry) for entry in entries)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


@app.command("fetch")
def fetch_dataset(
    name: NameArgument, root: RootOption = None, as_json: JsonOption = False
) -> None:
    """Download a data set unless it is there, verify it, and print its folder.

    Example: selfexpress data fetch mnist
    """
    location = fetch(name, root=root)
    load_dataset(name, root=root, download=False)
    _print_location(name, location, as_json=as_json)


@app.command("where")
def where_dataset(
    name: NameArgument, root: RootOption = None, as_json: JsonOption = False
) -> None:
    """Print the folder that holds a data set.

    Example: selfexpress data where mnist --json
    """
    _print_location(name, locate(name, root=root), as_json=as_json)


def _describe(spec: DatasetSpec, root: Path | None) -> dict[str, object]:
    """Return what is known of a data set as plain JSON values."""
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


def _columns(entry: dict[str, object]) -> tuple[str, ...]:
    """Return one line of the listing."""
    shape, splits = entry["shape"], entry["splits"]
    return (
        str(entry["name"]),
        str(entry["n_samples"]),
        str(entry["n_classes"] or "varies"),
        "x".join(map(str, shape)) if isinstance(shape, list) else "varies",
        "/".join(splits) if isinstance(splits, list) else "",
        str(entry["folder"] or "not found"),
    )


def _print_location(name: str, location: Location, *, as_json: bool) -> None:
    """Print the folder, or all that is known of it."""
    if not as_json:
        typer.echo(str(location.folder))
        return
    typer.echo(
        json.dumps(
            {
                "name": name,
                "folder": str(location.folder),
                "layout": location.layout.reader,
                "files": [str(path) for path in location.files],
            },
            indent=2,
        )
    )
