"""``selfexpress predict``: name rows with a fitted model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from selfexpress.cli.outputs import require_writable
from selfexpress.cli.rows import read_rows
from selfexpress.data.files import FORMATS, write_array, write_labels
from selfexpress.estimators.senet import SENet


def predict(
    model: Annotated[Path, typer.Argument(help="Model that fit wrote.")],
    data: Annotated[str, typer.Argument(help="File of rows, or a data set's name.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Labels to write.")],
    probabilities: Annotated[
        Path | None,
        typer.Option(help="Also write each cluster's share to this file."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Array or column of DATA that holds the rows.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, for machines.")
    ] = False,
) -> None:
    """Name the rows of DATA by the clusters of MODEL, without clustering again.

    Example: selfexpress predict rows.selfexpress new.npy -o labels.npy
    """
    for path in filter(None, (output, probabilities)):
        require_writable(path, suffixes=FORMATS)
    fitted = SENet.load(model, device=device)
    shares = fitted.predict_proba(read_rows(data, name=name))
    labels = shares.argmax(axis=1)
    write_labels(output, labels)
    if probabilities is not None:
        write_array(probabilities, shares)
    sizes = np.bincount(labels, minlength=shares.shape[1]).tolist()
    if as_json:
        print(json.dumps({"labels": str(output), "cluster_sizes": sizes}))
    else:
        print(f"{len(labels)} labels written to {output}; rows by cluster: {sizes}")
