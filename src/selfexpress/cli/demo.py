"""``selfexpress demo``: the whole path on data that needs no download."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
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
    seed: Annotated[int, typer.Option(help="Of data and training.")] = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Cluster synthetic subspaces and small digits; write labels, models, reports.

    Example: selfexpress demo -o demo-output
    """
    output.mkdir(parents=True, exist_ok=True)
    results = {}
    for name, problem in (("subspaces", _subspaces), ("digits", _digits)):
        if not quiet:
            typer.echo(f"{name}:", err=True)
        results[name] = _run(problem(seed), output / name, quiet=quiet)
    if as_json:
        print(json.dumps(results))
    else:
        _print_results(results, output)


@dataclass(frozen=True, eq=False)
class _Problem:
    X: Any
    truth: Any
    model: SENet
    report: str
    image_shape: tuple[int, int] | None = None


def _subspaces(seed: int) -> _Problem:
    """Five subspaces of dimension 6 in R^30, 300 points each."""
    from selfexpress import SENet, make_subspaces

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

    from selfexpress import SENet

    X, truth = load_digits(return_X_y=True)
    model = SENet(
        10,
        hidden_sizes=(256, 256),
        n_embedding=256,
        n_train_samples=900,
        max_iter=400,
        random_state=seed,
    )
    return _Problem(X, truth, model, "report.html", (8, 8))


def _run(problem: _Problem, prefix: Path, *, quiet: bool) -> dict[str, float]:
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

    X, truth, model = problem.X, problem.truth, problem.model
    is_new = np.arange(len(X)) % 5 == 4
    start = time.perf_counter()
    model.set_params(verbose=not quiet)
    with recorded_warnings() as warned, shown_stages(model, quiet=quiet):
        model.fit(X[~is_new])
    seconds = time.perf_counter() - start
    assigned = model.predict(X[is_new])
    write_labels(prefix.with_name(f"{prefix.name}-labels.csv"), model.labels_)
    model.save(prefix.with_suffix(".selfexpress"))
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
        "accuracy_new": metrics.clustering_accuracy(assigned, truth[is_new]),
        "seconds": seconds,
    }


def _print_results(results: dict[str, dict[str, float]], output: Path) -> None:
    rows = []
    for name, scores in results.items():
        *shares, seconds = scores.values()
        rows.append([name, *(f"{share:.3f}" for share in shares), f"{seconds:.1f}"])
    headings = ("data", "ACC", "NMI", "ARI", "ACC of new points", "seconds")
    title = "Scores against the truth, which the fit never saw"
    print_table(headings, rows, title=title)
    print(
        f"labels, models, pictures and runs are in {output}/; open "
        f"{output}/report.html in a browser"
    )
