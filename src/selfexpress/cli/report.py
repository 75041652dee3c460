"""``selfexpress report``: a run as one HTML page."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from selfexpress.cli.options import Json
from selfexpress.cli.outputs import require_writable


def report(
    run: Annotated[Path, typer.Argument(help="Folder that fit --run wrote.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="HTML file; report.html in RUN if unset."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a run as one HTML page that needs no network.

    Example: selfexpress report digits-run -o digits.html
    """
    from selfexpress.report import read_run, write_report

    start = time.perf_counter()
    record = read_run(run)
    path = run / "report.html" if output is None else output
    require_writable(path, suffixes=(".html", ".htm"))
    write_report(record, path)
    seconds = time.perf_counter() - start
    n_bytes = path.stat().st_size
    if as_json:
        print(json.dumps({"report": str(path), "bytes": n_bytes, "seconds": seconds}))
    else:
        print(f"report of {n_bytes / 1e6:.1f} MB written to {path}")
