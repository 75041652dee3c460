"""A clustering problem named on the command line: rows, and what a report shows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from selfexpress.cli.rows import read_dataset, read_rows
from selfexpress.datasets.loading import Dataset
from selfexpress.errors import ConfigError, DataError
from selfexpress.files.arrays import FORMATS, read_array, read_labels
from selfexpress.report.run_files import RUN_FILE, is_run, require_replaceable

# Beside the files of a run: how to do it again.
CONFIG_FILE = "config.toml"


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows to be clustered, and what is known of them.

    Attributes
    ----------
    rows : array or RowSource of shape (N, D)
    samples : array of N rows or images
        Shown in a report.
    truth : ndarray of shape (N,) or None
    class_names : tuple of str or None
    """

    rows: Any
    samples: Any
    truth: Any = None
    class_names: tuple[str, ...] | None = None


def read_problem(
    data: str, *, name: str | None, images: str | None, truth: Path | None
) -> Problem:
    """Read everything that a run will need, so that nothing fails after the fit.

    Parameters
    ----------
    data : str
        File of rows, or a data set's name.
    name : str or None
        Array or column of the file.
    images : str or None
        File of images, or a data set's name: the same samples as pictures. A data
        set's classes are taken as the truth.
    truth : path or None
        File of classes; goes before those of a data set.
    """
    dataset = _dataset(data)
    if dataset is None:
        rows = read_rows(data, name=name)
    else:
        rows = dataset.rows.astype(np.float32)
    samples = rows if dataset is None else dataset.samples
    if images is not None:
        dataset = _dataset(images)
        samples = read_array(images, mmap=True) if dataset is None else dataset.samples
        _require_as_many(len(samples), images, len(rows))
    if truth is not None:
        classes = read_labels(truth)
        _require_as_many(len(classes), str(truth), len(rows))
        return Problem(rows, samples, classes)
    if dataset is None:
        return Problem(rows, samples)
    return Problem(rows, samples, dataset.labels, dataset.class_names)


def require_run(run: Path | None, **needing_it: object) -> None:
    """Refuse options that only a run has a use for, and a place where none can be."""
    for option, value in needing_it.items():
        if value is not None and run is None:
            raise ConfigError(
                f"--{option} is for a report, but no run was asked for. Add --run "
                "FOLDER, or leave it out."
            )
    if run is None:
        return
    if any(place.exists() and not place.is_dir() for place in (run, *run.parents)):
        raise DataError(
            f"{run} must be a folder for the run, but is a file or lies in one. Choose "
            "another place."
        )
    existing = next(place for place in (run, *run.parents) if place.exists())
    if not os.access(existing, os.W_OK):
        raise DataError(
            f"{run} must be a folder that can be written to, but {existing} cannot. "
            "Choose another place."
        )
    require_replaceable(run)
    if (run / CONFIG_FILE).exists() and not is_run(run):
        raise DataError(
            f"{run} must be a folder without a {CONFIG_FILE} of its own, which would "
            "be replaced, but has one and no run. Choose another place."
        )


def run_files(run: Path | None, *, again: Path | None) -> list[Path]:
    """Return the files that a run's folder gets; none without a run.

    ``again`` is the file of options that is read. It may be that of the run itself,
    which is then written as it was.
    """
    if run is None:
        return []
    is_own = again is not None and again.resolve() == (run / CONFIG_FILE).resolve()
    return [run / RUN_FILE] if is_own else [run / RUN_FILE, run / CONFIG_FILE]


def _dataset(data: str) -> Dataset | None:
    """Return the data set of that name; None for a file."""
    path = Path(data)
    is_file = path.suffix.lower() in FORMATS or path.exists()
    return None if is_file else read_dataset(data)


def _require_as_many(n_given: int, origin: str, n_rows: int) -> None:
    if n_given != n_rows:
        raise DataError(
            f"{origin} must hold the {n_rows} samples of DATA in the same order, got "
            f"{n_given}. Check that they belong together."
        )
