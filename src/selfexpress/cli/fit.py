"""``selfexpress fit``: cluster rows, write a model."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selfexpress.cli.config import (
    CONFIG_FILE,
    config_text,
    effective_options,
    read_config,
    write_config,
)
from selfexpress.cli.inputs import read_problem
from selfexpress.cli.options import (
    AUTO,
    Data,
    Json,
    Name,
    Quiet,
    count_or_auto,
    given_settings,
    with_settings,
)
from selfexpress.cli.outputs import (
    require_apart,
    require_outside,
    require_run,
    require_writable,
    run_files,
)
from selfexpress.cli.terminal import print_table, shown_stages
from selfexpress.errors import ConfigError

if TYPE_CHECKING:
    from selfexpress import SENet

# More clusters than this are summed up instead of listed.
_MOST_LISTED = 20

_OUTPUTS, _REPORT, _MACHINE = "What to write", "Report", "Machine"


def _file(text: str, panel: str) -> Any:
    return typer.Option(help=text, rich_help_panel=panel)


def fit(
    context: typer.Context,
    data: Data,
    n_clusters: Annotated[
        Any,
        typer.Option(
            "--n-clusters",
            "-k",
            help="Number of clusters, or auto to have them counted.",
            parser=count_or_auto,
            metavar="INTEGER|auto",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model to write.")],
    name: Name = None,
    seed: Annotated[int, typer.Option(help="Fix for the same result twice.")] = 0,
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
    device: Annotated[str, _file("cpu, cuda or auto.", _MACHINE)] = AUTO,
    checkpoint: Annotated[
        Path | None,
        _file("Folder in which an interrupted fit goes on.", _MACHINE),
    ] = None,
    # Read by its callback, before the other options are looked at.
    config: Annotated[
        Path | None,
        typer.Option(
            help="TOML file of options; the command line goes before it.",
            is_eager=True,
            callback=read_config,
        ),
    ] = None,
    show_config: Annotated[
        bool,
        typer.Option("--show-config", help="Fit nothing; print the options as TOML."),
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Cluster the rows of DATA and write a model that assigns new rows.

    What is "auto" follows from the data and the device; the run says what it became.

    Example: selfexpress fit rows.npy -k 10 -o rows.selfexpress --run rows-run

    Again: selfexpress fit --config rows-run/config.toml
    """
    options = effective_options(context)
    if show_config:
        print(config_text(options), end="")
        return
    from selfexpress import SENet, distributed
    from selfexpress.files.arrays import FORMATS, write_csr, write_labels
    from selfexpress.report import recorded_warnings, save_run

    require_writable(output)
    require_writable(labels, suffixes=FORMATS)
    require_writable(coefficients, suffixes=(".npz",))
    require_writable(log_csv, suffixes=(".csv",))
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
    chosen = given_settings(settings)
    if log_csv is not None or log_tensorboard is not None:
        _require_training(chosen)
    with distributed.process_group():
        problem = read_problem(data, name=name, images=images, truth=truth)
        model = SENet(
            n_clusters,
            callbacks=_loggers(log_csv, log_tensorboard) or None,
            checkpoint=checkpoint,
            device=device,
            random_state=seed,
            verbose=not quiet,
            **chosen,
        )
        with recorded_warnings() as warned, shown_stages(model, quiet=quiet):
            try:
                model.fit(problem.rows)
            except KeyboardInterrupt:
                if distributed.is_main():
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
        n_samples, n_found = len(model.labels_), model.n_clusters_
        save_run(
            run,
            model,
            X=problem.samples,
            truth=problem.truth,
            class_names=problem.class_names,
            title=f"{Path(data).stem}: {n_samples:,} samples in {n_found} clusters",
            command=shlex.join(["selfexpress", *sys.argv[1:]]),
            warnings=warned,
        )
        write_config(run / CONFIG_FILE, config_text(options, model.settings_))
    _print_summary(model, output, labels, run, as_json=as_json)


with_settings(fit, before="device")


def _require_training(settings: Mapping[str, Any]) -> None:
    """Refuse a log of steps that will not be."""
    is_exact = settings.get("refine", AUTO) is not None
    if is_exact and settings.get("max_iter", AUTO) == AUTO:
        raise ConfigError(
            "--log-csv and --log-tensorboard must go with a training, which they "
            "record, but none was asked for. Give --max-iter 1000, or --refine none."
        )


def _say_what_is_kept(checkpoint: Path | None) -> None:
    """Say how to go on with an interrupted fit."""
    if checkpoint is None:
        text = "Nothing is kept of this fit; --checkpoint keeps a training."
    else:
        text = f"The training is kept in {checkpoint}; the same command takes it up."
    typer.echo(text, err=True)


def _loggers(log_csv: Path | None, log_tensorboard: Path | None) -> list[Any]:
    from selfexpress.training.callbacks import CSVLogger, TensorBoardLogger

    loggers = {CSVLogger: log_csv, TensorBoardLogger: log_tensorboard}
    return [logger(path) for logger, path in loggers.items() if path is not None]


def _print_summary(
    model: SENet, output: Path, labels: Path | None, run: Path | None, *, as_json: bool
) -> None:
    import numpy as np

    from selfexpress.estimators.html_summary import certificate_text

    sizes = np.bincount(model.labels_, minlength=model.n_clusters_)
    objectives, n_samples = model.history_["objective"], len(model.labels_)
    objective = float(objectives[-1]) if len(objectives) else None
    if as_json:
        files = {"model": output, "labels": labels, "run": run}
        files["config"] = None if run is None else run / CONFIG_FILE
        facts: dict[str, Any] = {
            name: str(path) for name, path in files.items() if path is not None
        }
        facts |= {"n_samples": n_samples, "n_clusters": model.n_clusters_}
        facts |= {"cluster_sizes": sizes.tolist(), "objective": objective}
        facts |= {"n_iter": model.n_iter_, "seconds": model.timings_}
        print(json.dumps(facts | {"settings": model.settings_}, default=str))
        return
    counted = " (auto)" if model.n_clusters == AUTO else ""
    print(f"{n_samples} rows in {model.n_clusters_} clusters{counted}")
    if len(sizes) > _MOST_LISTED:
        print(f"of {sizes.min()} to {sizes.max()} rows, {np.median(sizes):g} in half")
    else:
        rows = [(str(cluster), str(size)) for cluster, size in enumerate(sizes)]
        print_table(("cluster", "rows"), rows)
    gamma, seconds = model.settings_["gamma"], model.timings_
    stages = ", ".join(f"{name} {took:.1f} s" for name, took in seconds.items())
    if objective is not None:
        print(f"network: objective {objective:.4g} after {model.n_iter_} steps")
    if certificate := model.settings_.get("certificate"):
        print(f"coefficients: {certificate_text(certificate)}")
    print(f"gamma {gamma:.4g}")
    print(f"{sum(seconds.values()):.1f} s: {stages}")
    print(f"model written to {output}")
    if labels is not None:
        print(f"labels written to {labels}")
    if run is not None:
        command = shlex.join(["selfexpress", "report", str(run)])
        print(f"run written to {run}; see it with: {command}")
