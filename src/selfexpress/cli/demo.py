"""``selfexpress demo``: the whole path on data that needs no download."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selfexpress.cli.options import Json, Quiet
from selfexpress.cli.terminal import print_table, shown_stages

if TYPE_CHECKING:
    from selfexpress import SENet


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for what is made.")
    ] = Path("demo-output"),
    seed: Annotated[int, typer.Option(help="Of data and clustering.")] = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Cluster synthetic subspaces and small digits; write labels, models, reports.

    Example: selfexpress demo -o demo-output
    """
    from sklearn.datasets import load_digits

    from selfexpress import SENet, make_subspaces

    output.mkdir(parents=True, exist_ok=True)
    shared: dict[str, Any] = {"random_state": seed, "verbose": not quiet}
    # Five subspaces of dimension 6 in R^30, 300 points each.
    data = make_subspaces(
        5, dimension=6, n_features=30, n_samples=300, random_state=seed
    )
    model = SENet(5, **shared)
    report = output / "subspaces-report.html"
    results = {
        "subspaces": _run(model, data.X, data.labels, output / "subspaces", report)
    }
    # 1,797 handwritten digits of 8x8 pixels that scikit-learn ships.
    X, truth = load_digits(return_X_y=True)
    model = SENet(10, **shared)
    report = output / "report.html"
    results["digits"] = _run(model, X, truth, output / "digits", report, (8, 8))
    if as_json:
        print(json.dumps(results))
        return
    rows = []
    for name, scores in results.items():
        *shares, seconds = scores.values()
        rows.append([name, *(f"{share:.3f}" for share in shares), f"{seconds:.1f}"])
    headings = ("data", "ACC", "NMI", "ARI", "ACC of new points", "seconds")
    title = "Scores against the truth, which the fit never saw"
    print_table(headings, rows, title=title)
    print(f"labels, models, pictures and runs are in {output}/; see {report}")


def _run(
    model: SENet,
    X: Any,
    truth: Any,
    prefix: Path,
    report: Path,
    image_shape: tuple[int, int] | None = None,
) -> dict[str, float]:
    """Fit on four fifths of the rows, assign the rest, write everything."""
    import numpy as np
    from matplotlib.figure import Figure

    from selfexpress import metrics
    from selfexpress.files.arrays import write_labels
    from selfexpress.report import (
        plot_coefficients,
        recorded_warnings,
        save_run,
        write_report,
    )

    name, quiet = prefix.name, not model.verbose
    if not quiet:
        typer.echo(f"{name}:", err=True)
    is_new = np.arange(len(X)) % 5 == 4
    start = time.perf_counter()
    with recorded_warnings() as warned, shown_stages(model, quiet=quiet):
        model.fit(X[~is_new])
    seconds = time.perf_counter() - start
    assigned, labels, classes = model.predict(X[is_new]), model.labels_, truth[~is_new]
    write_labels(prefix.with_name(f"{name}-labels.csv"), labels)
    model.save(prefix.with_suffix(".selfexpress"))
    figure = Figure(figsize=(6, 6), layout="constrained")
    axes = plot_coefficients(model.coefficients_, labels, axes=figure.subplots())
    axes.set_title(f"{name}: |C|, sorted by label")
    figure.savefig(prefix.with_suffix(".png"), dpi=120)
    run = save_run(
        prefix.with_name(f"{name}-run"),
        model,
        X=X[~is_new],
        truth=classes,
        image_shape=image_shape,
        title=f"{name}: {len(labels):,} samples",
        command="selfexpress demo",
        warnings=warned,
    )
    write_report(run, report)
    return {
        "accuracy": metrics.clustering_accuracy(labels, classes),
        "normalized_mutual_info": metrics.normalized_mutual_info(labels, classes),
        "adjusted_rand": metrics.adjusted_rand(labels, classes),
        "accuracy_new": metrics.clustering_accuracy(assigned, truth[is_new]),
        "seconds": seconds,
    }
