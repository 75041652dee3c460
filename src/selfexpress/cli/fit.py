"""``selfexpress fit``: train on rows, cluster them, write a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from selfexpress.cli.outputs import require_writable
from selfexpress.cli.rows import read_rows
from selfexpress.data.files import FORMATS, write_csr, write_labels
from selfexpress.estimators.senet import SENet


def fit(
    data: Annotated[str, typer.Argument(help="File of rows, or a data set's name.")],
    n_clusters: Annotated[
        int, typer.Option("--n-clusters", "-k", help="Number of clusters.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model to write.")],
    labels: Annotated[
        Path | None, typer.Option(help="Also write the labels to this file.")
    ] = None,
    coefficients: Annotated[
        Path | None, typer.Option(help="Also write C to this sparse .npz file.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Array or column of DATA that holds the rows.")
    ] = None,
    gamma: Annotated[
        float, typer.Option(help="Weight of the reconstruction against sparsity.")
    ] = 200.0,
    l1_ratio: Annotated[
        float, typer.Option(help="Share of the l1 norm in the elastic net.")
    ] = 0.9,
    max_iter: Annotated[int, typer.Option(help="Training steps.")] = 1000,
    n_train_samples: Annotated[
        int, typer.Option(help="Rows drawn to train on; 0 for all.")
    ] = 2000,
    affinity: Annotated[
        str, typer.Option(help="nearest_neighbors or symmetric.")
    ] = "nearest_neighbors",
    n_eigenvectors: Annotated[
        int | None, typer.Option(help="Of the embedding; as many as clusters if unset.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    seed: Annotated[int, typer.Option(help="Fix for the same result twice.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, for machines.")
    ] = False,
) -> None:
    """Cluster the rows of DATA and write a model that names new rows.

    Example: selfexpress fit rows.npy -k 10 -o rows.selfexpress --labels labels.npy
    """
    require_writable(output)
    if labels is not None:
        require_writable(labels, suffixes=FORMATS)
    if coefficients is not None:
        require_writable(coefficients, suffixes=(".npz",))
    model = SENet(
        n_clusters,
        gamma=gamma,
        l1_ratio=l1_ratio,
        max_iter=max_iter,
        n_train_samples=n_train_samples or None,
        affinity=affinity,
        n_eigenvectors=n_eigenvectors,
        device=device,
        random_state=seed,
        verbose=not quiet,
    ).fit(read_rows(data, name=name))
    model.save(output)
    if labels is not None:
        write_labels(labels, model.labels_)
    if coefficients is not None:
        write_csr(coefficients, model.coefficients_)
    if as_json:
        print(json.dumps(_summary(model, output)))
    else:
        _print_summary(model, output)


def _summary(model: SENet, output: Path) -> dict[str, object]:
    sizes = np.bincount(model.labels_, minlength=model.n_clusters)
    return {
        "model": str(output),
        "n_samples": len(model.labels_),
        "cluster_sizes": sizes.tolist(),
        "objective": float(model.history_["objective"][-1]),
        "n_iter": model.n_iter_,
        "seconds": model.timings_,
    }


def _print_summary(model: SENet, output: Path) -> None:
    console = Console()
    console.print(f"{len(model.labels_)} rows in {model.n_clusters} clusters")
    table = Table()
    table.add_column("cluster", justify="right")
    table.add_column("rows", justify="right")
    for cluster, size in enumerate(np.bincount(model.labels_)):
        table.add_row(str(cluster), str(size))
    console.print(table)
    stages = ", ".join(f"{name} {s:.1f} s" for name, s in model.timings_.items())
    console.print(f"{stages}\nmodel written to {output}", markup=False)
