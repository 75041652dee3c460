"""``selfexpress predict``: assign rows to the clusters of a fitted model."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selfexpress.cli.inputs import read_rows
from selfexpress.cli.options import Data, Device, Json, Name, Quiet
from selfexpress.cli.outputs import require_apart, require_writable
from selfexpress.cli.terminal import rows_bar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def predict(
    model: Annotated[Path, typer.Argument(help="Model that fit or save wrote.")],
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="Labels to write.")],
    probabilities: Annotated[
        Path | None,
        typer.Option(help="Also write each cluster's share to this file."),
    ] = None,
    name: Name = None,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Assign the rows of DATA to the clusters of MODEL, without clustering again.

    Example: selfexpress predict rows.selfexpress new.npy -o labels.npy
    """
    from selfexpress import EnSC, SENet, distributed
    from selfexpress.estimators.model_file import read_model
    from selfexpress.files.arrays import FORMATS, write_array
    from selfexpress.ops.devices import resolve_device

    for path in (output, probabilities):
        require_writable(path, suffixes=FORMATS)
    require_apart(
        {"MODEL": model, "DATA": data},
        {"--output": output, "--probabilities": probabilities},
    )
    with distributed.process_group():
        kinds: tuple[type[Any], ...] = (SENet, EnSC)
        fitted = read_model(kinds, model, resolve_device(device))
        rows = read_rows(data, name=name)
        if probabilities is not None:
            if not distributed.is_main():
                return
            shares = fitted.predict_proba(rows)
            write_array(probabilities, shares)
            parts: Iterable[NDArray[np.int64]] = [shares.argmax(axis=1)]
        elif distributed.n_ranks() > 1:
            parts = [fitted.predict(rows)]
        else:
            parts = fitted.predict_blocks(rows)
        if not distributed.is_main():
            return
        sizes = _write(output, parts, len(rows), fitted.n_clusters_, quiet=quiet)
    if as_json:
        print(json.dumps({"labels": str(output), "cluster_sizes": sizes}))
    else:
        print(f"{len(rows)} labels written to {output}; rows by cluster: {sizes}")


def _write(
    output: Path,
    parts: Iterable[NDArray[np.int64]],
    n_labels: int,
    n_clusters: int,
    *,
    quiet: bool,
) -> list[int]:
    """Write labels as they come; return how often each occurs."""
    import numpy as np

    from selfexpress.files.label_files import label_writer

    sizes = np.zeros(n_clusters, dtype=np.int64)
    with rows_bar(quiet=quiet) as bar, label_writer(output, n_labels) as append:
        task = bar.add_task("assigning rows", total=n_labels)
        for labels in parts:
            append(labels)
            sizes += np.bincount(labels, minlength=n_clusters)
            bar.advance(task, len(labels))
    return sizes.tolist()
