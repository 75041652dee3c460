"""``selfexpress predict``: name rows with a fitted model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.progress import Progress

from selfexpress import distributed
from selfexpress.cli.outputs import require_apart, require_writable
from selfexpress.cli.rows import read_rows
from selfexpress.cli.stages import rows_bar
from selfexpress.estimators.senet import SENet
from selfexpress.files.arrays import FORMATS, write_array
from selfexpress.files.label_files import label_writer


def predict(
    model: Annotated[Path, typer.Argument(help="Model that fit wrote.")],
    data: Annotated[
        str, typer.Argument(help="File or folder of rows, or a data set's name.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Labels to write.")],
    probabilities: Annotated[
        Path | None,
        typer.Option(help="Also write each cluster's share to this file."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Array or column of DATA that holds the rows.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, for machines.")
    ] = False,
) -> None:
    """Name the rows of DATA by the clusters of MODEL, without clustering again.

    Example: selfexpress predict rows.selfexpress new.npy -o labels.npy
    """
    for path in filter(None, (output, probabilities)):
        require_writable(path, suffixes=FORMATS)
    require_apart(
        {"MODEL": model, "DATA": data},
        {"--output": output, "--probabilities": probabilities},
    )
    fitted = SENet.load(model, device=device)
    rows = read_rows(data, name=name)
    if probabilities is not None:
        if not distributed.is_main():
            return
        shares = fitted.predict_proba(rows)
        write_array(probabilities, shares)
        parts: Iterable[NDArray[np.int64]] = [shares.argmax(axis=1)]
    elif distributed.n_ranks() > 1:
        parts = [fitted.predict(rows)]
        if not distributed.is_main():
            return
    else:
        parts = fitted.predict_blocks(rows)
    with rows_bar(quiet=quiet) as bar:
        parts = _watched(parts, bar, n_rows=len(rows))
        sizes = _write(output, parts, n_labels=len(rows), n_clusters=fitted.n_clusters_)
    if as_json:
        print(json.dumps({"labels": str(output), "cluster_sizes": sizes}))
    else:
        print(f"{len(rows)} labels written to {output}; rows by cluster: {sizes}")


def _watched(
    parts: Iterable[NDArray[np.int64]], bar: Progress, *, n_rows: int
) -> Iterator[NDArray[np.int64]]:
    """Yield the same labels; walking them moves the bar."""
    task = bar.add_task("naming rows", total=n_rows)
    for labels in parts:
        yield labels
        bar.advance(task, len(labels))


def _write(
    output: Path,
    parts: Iterable[NDArray[np.int64]],
    *,
    n_labels: int,
    n_clusters: int,
) -> list[int]:
    """Write labels as they come; return how often each occurs."""
    sizes = np.zeros(n_clusters, dtype=np.int64)
    with label_writer(output, n_labels) as append:
        for labels in parts:
            append(labels)
            sizes += np.bincount(labels, minlength=n_clusters)
    return [int(size) for size in sizes]
