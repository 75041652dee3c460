"""``selfexpress demo``: the whole path on data that needs no download."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from selfexpress import metrics
from selfexpress.cli.stages import shown_stages
from selfexpress.datasets.synthetic import make_subspaces
from selfexpress.estimators.senet import SENet
from selfexpress.files.arrays import write_labels
from selfexpress.report import (
    plot_coefficients,
    recorded_warnings,
    save_run,
    write_report,
)


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for what is made.")
    ] = Path("demo-output"),
    seed: Annotated[int, typer.Option(help="Of data and training.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, for machines.")
    ] = False,
) -> None:
    """Cluster synthetic subspaces and small digits; write labels, models, reports.

    Example: selfexpress demo -o demo-output
    """
    output.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True)
    results = {}
    for name, problem in (("subspaces", _subspaces), ("digits", _digits)):
        if not quiet:
            console.print(f"{name}:", highlight=False)
        results[name] = _run(problem(seed), output / name, quiet=quiet)
    if as_json:
        print(json.dumps(results))
    else:
        _print_table(results, output)


@dataclass(frozen=True, eq=False)
class _Problem:
    X: NDArray[np.float64]
    truth: NDArray[np.int64]
    model: SENet
    report: str
    image_shape: tuple[int, int] | None = None


def _subspaces(seed: int) -> _Problem:
    """Five subspaces of dimension 6 in R^30, 300 points each."""
    data = make_subspaces(
        5, dimension=6, n_features=30, n_samples=300, random_state=seed
    )
    model = SENet(
        5,
        gamma=50.0,
        hidden_sizes=(256, 256),
        n_embedding=256,
        n_train_samples=750,
        max_iter=400,
        random_state=seed,
    )
    return _Problem(data.X, data.labels, model, "subspaces-report.html")


def _digits(seed: int) -> _Problem:
    """1,797 handwritten digits of 8x8 pixels that scikit-learn ships."""
    from sklearn.datasets import load_digits

    X, truth = load_digits(return_X_y=True)
    model = SENet(
        10,
        hidden_sizes=(256, 256),
        n_embedding=256,
        n_train_samples=900,
        max_iter=400,
        random_state=seed,
    )
    return _Problem(X, truth.astype(np.int64), model, "report.html", (8, 8))


def _run(problem: _Problem, prefix: Path, *, quiet: bool) -> dict[str, float]:
    """Fit on four fifths of the rows, name the rest, write everything."""
    X, truth, model = problem.X, problem.truth, problem.model
    is_new = np.arange(len(X)) % 5 == 4
    start = time.perf_counter()
    model.set_params(verbose=not quiet)
    with recorded_warnings() as warned, shown_stages(model, quiet=quiet):
        model.fit(X[~is_new])
    seconds = time.perf_counter() - start
    named = model.predict(X[is_new])
    write_labels(prefix.with_name(f"{prefix.name}-labels.csv"), model.labels_)
    model.save(prefix.with_suffix(".selfexpress"))
    # Here, as every other command would wait for it.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 6), layout="constrained")
    axes = plot_coefficients(model.coefficients_, model.labels_, axes=figure.subplots())
    axes.set_title(f"{prefix.name}: |C|, sorted by label")
    figure.savefig(prefix.with_suffix(".png"), dpi=120)
    run = save_run(
        prefix.with_name(f"{prefix.name}-run"),
        model,
        X=X[~is_new],
        truth=truth[~is_new],
        image_shape=problem.image_shape,
        title=f"{prefix.name}: {len(model.labels_):,} samples",
        command="selfexpress demo",
        warnings=warned,
    )
    write_report(run, prefix.with_name(problem.report))
    return {
        "accuracy": metrics.clustering_accuracy(model.labels_, truth[~is_new]),
        "normalized_mutual_info": metrics.normalized_mutual_info(
            model.labels_, truth[~is_new]
        ),
        "adjusted_rand": metrics.adjusted_rand(model.labels_, truth[~is_new]),
        "accuracy_new": metrics.clustering_accuracy(named, truth[is_new]),
        "seconds": seconds,
    }


def _print_table(results: dict[str, dict[str, float]], output: Path) -> None:
    table = Table(title="Scores against the truth, which the fit never saw")
    for heading in ("data", "ACC", "NMI", "ARI", "ACC of new points", "seconds"):
        table.add_column(heading, justify="left" if heading == "data" else "right")
    for name, scores in results.items():
        *shares, seconds = scores.values()
        table.add_row(name, *(f"{share:.3f}" for share in shares), f"{seconds:.1f}")
    console = Console()
    console.print(table)
    console.print(
        f"labels, models, pictures and runs are in {output}/; open "
        f"{output}/report.html in a browser",
        highlight=False,
    )
