"""Outputs named on the command line, refused before the work and not after it."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from selfexpress.cli.config import CONFIG_FILE
from selfexpress.errors import ConfigError, DataError


def require_writable(path: Path | None, *, suffixes: Collection[str] = ()) -> None:
    """Refuse a file that could not be written, or has none of the suffixes."""
    from selfexpress.files.atomic import require_replaceable

    if path is None:
        return
    if suffixes and path.suffix.lower() not in suffixes:
        raise DataError(
            f"The suffix of {path} must be one of {', '.join(suffixes)}, got "
            f"{path.suffix!r}. Choose another name."
        )
    if not path.parent.is_dir():
        raise DataError(
            f"The folder {path.parent} must exist before {path.name} can be written "
            "there. Create it."
        )
    require_replaceable(path)
    if not os.access(path.resolve().parent, os.W_OK):
        raise DataError(
            f"{path} must be a file that can be written, but lies in a folder without "
            "permission. Choose another place."
        )


def require_outside(data: str, **folders: Path | None) -> None:
    """Refuse a folder of outputs in the folder of rows, where it would be read."""
    inside = Path(data).resolve()
    for option, place in folders.items():
        if place is None or not inside.is_dir():
            continue
        if inside in (path := place.resolve(), *path.parents):
            raise DataError(
                f"--{option} must not lie in the folder of DATA, whose files are taken "
                f"for rows, got {place}. Choose another place."
            )


def require_apart(
    inputs: Mapping[str, Path | str | None], outputs: Mapping[str, Path | None]
) -> None:
    """Refuse an output that is an input or another output: one would be lost.

    Nor may one be a file of rows in a folder of them: it would be taken for a shard.
    Places stand by the name that the command line has for them; None is none.
    """
    from selfexpress.files.arrays import FORMATS

    known = {Path(place).resolve(): name for name, place in inputs.items() if place}
    for name, place in outputs.items():
        if place is None:
            continue
        path = place.resolve()
        if path in known:
            raise DataError(
                f"{known[path]} and {name} must be different files, but both are "
                f"{place}. Choose another name for {name}."
            )
        if path.parent in known and path.suffix.lower() in FORMATS:
            raise DataError(
                f"{name} must not lie among the files of {known[path.parent]}, where "
                f"it would be taken for one of them, got {place}. Choose another place."
            )
        known[path] = name


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
    from selfexpress.report.run_files import is_run, require_replaceable

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
    from selfexpress.report.run_files import RUN_FILE

    is_own = again is not None and again.resolve() == (run / CONFIG_FILE).resolve()
    return [run / RUN_FILE] if is_own else [run / RUN_FILE, run / CONFIG_FILE]
