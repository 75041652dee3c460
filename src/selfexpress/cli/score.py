"""``selfexpress score``: compare labels with the truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from selfexpress.cli.options import Json
from selfexpress.cli.terminal import print_table
from selfexpress.errors import DataError

# Key in the JSON output, short name, what it is.
_SCORES = {
    "accuracy": ("ACC", "clustering accuracy"),
    "normalized_mutual_info": ("NMI", "normalised mutual information"),
    "adjusted_rand": ("ARI", "adjusted Rand index"),
    "subspace_preserving_error": ("SRE", "coefficients on wrong classes"),
    "graph_error": ("wrong edges", "edge weight between classes"),
    "connectivity": ("CONN", "connectivity of the weakest class"),
}


def score(
    labels: Annotated[Path, typer.Argument(help="File of cluster labels.")],
    truth: Annotated[Path, typer.Argument(help="File of true classes.")],
    truth_name: Annotated[
        str | None,
        typer.Option(help="Array or column of TRUTH that holds the classes."),
    ] = None,
    coefficients: Annotated[
        Path | None,
        typer.Option(help="Sparse .npz of coefficients: adds SRE, wrong edges, CONN."),
    ] = None,
    affinity: Annotated[
        Path | None,
        typer.Option(
            help="Sparse .npz of the graph for wrong edges and CONN; "
            "|C| + |C|^T of the coefficients without it."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print how well LABELS match TRUTH: ACC, NMI, ARI.

    Files are .npy, .npz, .csv, .parquet, .mat or .safetensors. SRE, the share of wrong
    edges and CONN are of the true classes: the labels play no part in them.

    Example: selfexpress score labels.csv truth.csv
    """
    from selfexpress import metrics
    from selfexpress.files.arrays import read_csr, read_labels

    found, classes = read_labels(labels), read_labels(truth, name=truth_name)
    if len(found) != len(classes):
        raise DataError(
            f"{labels} and {truth} must label the same samples, got {len(found)} and "
            f"{len(classes)} of them. Check that they belong together."
        )
    scores = {
        "accuracy": metrics.clustering_accuracy(found, classes),
        "normalized_mutual_info": metrics.normalized_mutual_info(found, classes),
        "adjusted_rand": metrics.adjusted_rand(found, classes),
    }
    if coefficients is not None:
        matrix = read_csr(coefficients)
        scores["subspace_preserving_error"] = metrics.subspace_preserving_error(
            matrix, classes
        )
    if affinity is not None or coefficients is not None:
        graph = matrix if affinity is None else read_csr(affinity)
        scores["graph_error"] = metrics.graph_error(graph, classes)
        scores["connectivity"] = metrics.connectivity(graph, classes)
    if as_json:
        print(json.dumps({"n_samples": len(found), **scores}))
        return
    named = [(*_SCORES[key], f"{value:.4f}") for key, value in scores.items()]
    rows = [(name, value, meaning) for name, meaning, value in named]
    print_table(("score", "value", "meaning"), rows)
