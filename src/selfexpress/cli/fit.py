"""``selfexpress fit``: train on rows, cluster them, write a model."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from selfexpress import distributed
from selfexpress.cli.config import (
    config_text,
    effective_options,
    read_config,
    write_config,
)
from selfexpress.cli.options import parse_count, parse_number
from selfexpress.cli.outputs import require_apart, require_outside, require_writable
from selfexpress.cli.problem import (
    CONFIG_FILE,
    Problem,
    read_problem,
    require_run,
    run_files,
)
from selfexpress.cli.stages import shown_stages
from selfexpress.config import AUTO
from selfexpress.errors import ConfigError
from selfexpress.estimators.senet import SENet
from selfexpress.files.arrays import FORMATS, write_csr, write_labels
from selfexpress.report import recorded_warnings, save_run
from selfexpress.training.callbacks import Callback, CSVLogger, TensorBoardLogger

# More clusters than this are summed up instead of listed.
_MOST_LISTED = 20

_OUTPUTS, _REPORT = "What to write", "Report"
_TRAINING, _GRAPH = "Training", "Graph and labels"
_MACHINE, _TERMINAL = "Machine", "Configuration and terminal"


def _auto(text: str, panel: str, **taken: Any) -> Any:
    """Return an option that SENet decides upon unless it is given."""
    return typer.Option(help=text, rich_help_panel=panel, show_default="auto", **taken)


def _auto_count(text: str, panel: str) -> Any:
    return _auto(text, panel, parser=parse_count, metavar="INTEGER|auto")


def _auto_number(text: str, panel: str) -> Any:
    return _auto(text, panel, parser=parse_number, metavar="FLOAT|auto")


def _default(text: str, panel: str, value: object) -> Any:
    """Return an option whose default is that of SENet."""
    return typer.Option(help=text, rich_help_panel=panel, show_default=str(value))


def _file(text: str, panel: str) -> Any:
    return typer.Option(help=text, rich_help_panel=panel)


def fit(
    context: typer.Context,
    data: Annotated[
        str, typer.Argument(help="File or folder of rows, or a data set's name.")
    ],
    n_clusters: Annotated[
        Any,
        typer.Option(
            "--n-clusters",
            "-k",
            help="Number of clusters, or auto to have them counted.",
            parser=parse_count,
            metavar="INTEGER|auto",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model to write.")],
    name: Annotated[
        str | None, typer.Option(help="Array or column of DATA that holds the rows.")
    ] = None,
    labels: Annotated[Path | None, _file("Labels of the rows.", _OUTPUTS)] = None,
    coefficients: Annotated[
        Path | None, _file("Coefficients C, a sparse .npz file.", _OUTPUTS)
    ] = None,
    log_csv: Annotated[
        Path | None, _file("Objective of every step, a .csv file.", _OUTPUTS)
    ] = None,
    log_tensorboard: Annotated[
        Path | None, _file("The same for TensorBoard, a folder.", _OUTPUTS)
    ] = None,
    run: Annotated[
        Path | None,
        _file("Folder for selfexpress report, with a config.toml.", _REPORT),
    ] = None,
    truth: Annotated[
        Path | None, _file("File of true classes; adds scores to the run.", _REPORT)
    ] = None,
    images: Annotated[
        str | None,
        _file("File or data set with the samples as pictures.", _REPORT),
    ] = None,
    gamma: Annotated[
        Any,
        _auto_number("Weight of the reconstruction against sparsity.", _TRAINING),
    ] = None,
    gamma_scale: Annotated[
        str | None,
        _default("absolute, or relative to the data.", _TRAINING, "absolute"),
    ] = None,
    l1_ratio: Annotated[
        Any,
        _auto_number("Share of the l1 norm in the elastic net.", _TRAINING),
    ] = None,
    max_iter: Annotated[
        Any, _auto_count("Training steps, or the most of them.", _TRAINING)
    ] = None,
    n_train_samples: Annotated[
        Any, _auto_count("Rows drawn to train on; 0 for all.", _TRAINING)
    ] = None,
    batch_size: Annotated[
        Any, _auto_count("Rows expressed in a step.", _TRAINING)
    ] = None,
    hidden_sizes: Annotated[
        str | None, _auto("Hidden layers, such as 512,512.", _TRAINING)
    ] = None,
    n_embedding: Annotated[
        Any, _auto_count("Dimension of queries and keys.", _TRAINING)
    ] = None,
    learning_rate: Annotated[Any, _auto_number("Of the first step.", _TRAINING)] = None,
    schedule: Annotated[
        str | None,
        _default(
            "adaptive to end by itself, cosine or constant.", _TRAINING, "adaptive"
        ),
    ] = None,
    optimizer: Annotated[
        str | None, _default("adam or muon.", _TRAINING, "adam")
    ] = None,
    start: Annotated[
        str | None, _auto("alike, or random as in the paper.", _TRAINING)
    ] = None,
    affinity: Annotated[
        str | None,
        _auto(
            "symmetric, squared_cosines, weighted_neighbors or nearest_neighbors.",
            _GRAPH,
        ),
    ] = None,
    n_neighbors: Annotated[
        int | None,
        _default("Rows joined to each, for an affinity of neighbours.", _GRAPH, 10),
    ] = None,
    n_nonzero: Annotated[
        int | None, _default("Coefficients kept of each row.", _GRAPH, 30)
    ] = None,
    n_eigenvectors: Annotated[
        Any, _auto_count("Dimension of the spectral embedding.", _GRAPH)
    ] = None,
    n_cluster_samples: Annotated[
        Any,
        _auto_count("Rows to build the graph of; 0 for all. Others are named.", _GRAPH),
    ] = None,
    block_size: Annotated[
        int | None, _default("Rows handled at once.", _MACHINE, 16_384)
    ] = None,
    precision: Annotated[
        str | None, _auto("float32, or tf32 or bfloat16 on a GPU.", _MACHINE)
    ] = None,
    device: Annotated[
        str, typer.Option(help="cpu, cuda or auto.", rich_help_panel=_MACHINE)
    ] = "auto",
    checkpoint: Annotated[
        Path | None,
        _file("Folder in which an interrupted fit goes on.", _MACHINE),
    ] = None,
    seed: Annotated[int, typer.Option(help="Fix for the same result twice.")] = 0,
    # Read by its callback, before the other options are looked at.
    config: Annotated[
        Path | None,
        typer.Option(
            help="TOML file of options; the command line goes before it.",
            rich_help_panel=_TERMINAL,
            is_eager=True,
            callback=read_config,
        ),
    ] = None,
    show_config: Annotated[
        bool,
        typer.Option(
            "--show-config",
            help="Fit nothing; print the options as TOML.",
            rich_help_panel=_TERMINAL,
        ),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", help="No progress.", rich_help_panel=_TERMINAL),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print JSON, for machines.", rich_help_panel=_TERMINAL
        ),
    ] = False,
) -> None:
    """Cluster the rows of DATA and write a model that names new rows.

    What is "auto" follows from the data and the device; the run says what it became.

    Example: selfexpress fit rows.npy -k 10 -o rows.selfexpress --run rows-run

    Again: selfexpress fit --config rows-run/config.toml
    """
    options = effective_options(context)
    if show_config:
        print(config_text(options), end="")
        return
    _require_places(output, labels, coefficients, log_csv)
    require_run(run, truth=truth, images=images)
    require_apart(
        {"DATA": data, "--truth": truth, "--images": images, "--config": config},
        {
            "--output": output,
            "--labels": labels,
            "--coefficients": coefficients,
            "--log-csv": log_csv,
            **{f"{path.name} of --run": path for path in run_files(run, again=config)},
        },
    )
    require_outside(data, run=run, checkpoint=checkpoint)
    problem = read_problem(data, name=name, images=images, truth=truth)
    model = SENet(
        n_clusters,
        callbacks=_loggers(log_csv, log_tensorboard),
        checkpoint=checkpoint,
        device=device,
        random_state=seed,
        verbose=not quiet,
        **_given(
            gamma=gamma,
            gamma_scale=gamma_scale,
            l1_ratio=l1_ratio,
            max_iter=max_iter,
            n_train_samples=n_train_samples,
            batch_size=batch_size,
            hidden_sizes=_parse_sizes(hidden_sizes),
            n_embedding=n_embedding,
            learning_rate=learning_rate,
            schedule=schedule,
            optimizer=optimizer,
            start=start,
            affinity=affinity,
            n_neighbors=n_neighbors,
            n_nonzero=n_nonzero,
            n_eigenvectors=n_eigenvectors,
            n_cluster_samples=n_cluster_samples,
            block_size=block_size,
            precision=precision,
        ),
    )
    with recorded_warnings() as warned, shown_stages(model, quiet=quiet):
        try:
            model.fit(problem.rows)
        except KeyboardInterrupt:
            _say_what_is_kept(checkpoint)
            raise
    if not distributed.is_main():
        return
    model.save(output)
    if labels is not None:
        write_labels(labels, model.labels_)
    if coefficients is not None:
        write_csr(coefficients, model.coefficients_)
    if run is not None:
        _save_run(run, model, problem, title=Path(data).stem, warned=warned)
        write_config(run / CONFIG_FILE, config_text(options, model.settings_))
    if as_json:
        print(json.dumps(_summary(model, output, labels, run)))
    else:
        _print_summary(model, output, labels, run)


def _require_places(
    output: Path, labels: Path | None, coefficients: Path | None, log: Path | None
) -> None:
    """Refuse files that could not be written, before the work."""
    require_writable(output)
    if labels is not None:
        require_writable(labels, suffixes=FORMATS)
    if coefficients is not None:
        require_writable(coefficients, suffixes=(".npz",))
    if log is not None:
        require_writable(log, suffixes=(".csv",))


def _say_what_is_kept(checkpoint: Path | None) -> None:
    """Tell whoever interrupts a fit how to go on."""
    if not distributed.is_main():
        return
    if checkpoint is None:
        text = "Nothing is kept of this fit; with --checkpoint it could be taken up."
    else:
        text = f"The training is kept in {checkpoint}; the same command takes it up."
    Console(stderr=True).print(text, markup=False, highlight=False, soft_wrap=True)


# Options for which 0 means all.
_ZERO_IS_ALL = ("n_train_samples", "n_cluster_samples")


def _given(**settings: Any) -> dict[str, Any]:
    """Return the settings that were given; SENet decides upon the others."""
    return {
        name: None if name in _ZERO_IS_ALL and value == 0 else value
        for name, value in settings.items()
        if value is not None
    }


def _parse_sizes(text: str | None) -> tuple[int, ...] | str | None:
    if text is None or text == AUTO:
        return text
    try:
        return tuple(int(size) for size in text.split(","))
    except ValueError as error:
        raise ConfigError(
            f"--hidden-sizes must be numbers with commas between them, got {text!r}. "
            "Write for example 512,512."
        ) from error


def _loggers(log_csv: Path | None, log_tensorboard: Path | None) -> list[Callback]:
    loggers: list[Callback] = []
    if log_csv is not None:
        loggers.append(CSVLogger(log_csv))
    if log_tensorboard is not None:
        loggers.append(TensorBoardLogger(log_tensorboard))
    return loggers


def _save_run(
    run: Path, model: SENet, problem: Problem, *, title: str, warned: Sequence[object]
) -> None:
    n_samples, n_clusters = len(model.labels_), model.n_clusters_
    save_run(
        run,
        model,
        X=problem.samples,
        truth=problem.truth,
        class_names=problem.class_names,
        title=f"{title}: {n_samples:,} samples in {n_clusters} clusters",
        command=shlex.join(["selfexpress", *sys.argv[1:]]),
        warnings=warned,
    )


def _summary(
    model: SENet, output: Path, labels: Path | None, run: Path | None
) -> dict[str, object]:
    sizes = np.bincount(model.labels_, minlength=model.n_clusters_)
    written = {} if labels is None else {"labels": str(labels)}
    if run is not None:
        written |= {"run": str(run), "config": f"{run}/config.toml"}
    return {
        "model": str(output),
        "n_samples": len(model.labels_),
        "n_clusters": model.n_clusters_,
        "cluster_sizes": sizes.tolist(),
        "objective": float(model.history_["objective"][-1]),
        "n_iter": model.n_iter_,
        "seconds": model.timings_,
        "settings": model.settings_,
        **written,
    }


def _print_summary(
    model: SENet, output: Path, labels: Path | None, run: Path | None
) -> None:
    console = Console(highlight=False)
    counted = " (auto)" if model.n_clusters == AUTO else ""
    console.print(f"{len(model.labels_)} rows in {model.n_clusters_} clusters{counted}")
    console.print(_sizes(model))
    objective = model.history_["objective"][-1]
    gamma = model.settings_["gamma"]
    stages = ", ".join(f"{name} {s:.1f} s" for name, s in model.timings_.items())
    lines = [
        f"objective {objective:.4g} after {model.n_iter_} steps, gamma {gamma:.4g}",
        f"{sum(model.timings_.values()):.1f} s: {stages}",
        f"model written to {output}",
    ]
    if labels is not None:
        lines.append(f"labels written to {labels}")
    if run is not None:
        command = shlex.join(["selfexpress", "report", str(run)])
        lines.append(f"run written to {run}; see it with: {command}")
    console.print("\n".join(lines), markup=False, soft_wrap=True)


def _sizes(model: SENet) -> Table | str:
    sizes = np.bincount(model.labels_, minlength=model.n_clusters_)
    if len(sizes) > _MOST_LISTED:
        return f"of {sizes.min()} to {sizes.max()} rows, {np.median(sizes):g} in half"
    table = Table()
    table.add_column("cluster", justify="right")
    table.add_column("rows", justify="right")
    for cluster, size in enumerate(sizes):
        table.add_row(str(cluster), str(size))
    return table
