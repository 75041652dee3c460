"""Outputs named on the command line, refused before the work and not after it."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from selfexpress.errors import DataError
from selfexpress.files.arrays import FORMATS
from selfexpress.files.atomic import require_replaceable


def require_writable(path: Path, *, suffixes: Collection[str] = ()) -> None:
    """Refuse a file that could not be written.

    Parameters
    ----------
    path : Path
    suffixes : collection of str
        Endings that the file may have; any if empty.
    """
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
    """Refuse a folder of outputs in the folder of rows, where it would be read.

    Parameters
    ----------
    data : str
        File or folder of rows, or a data set's name.
    folders : Path or None
        By the name of their option.
    """
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

    Parameters
    ----------
    inputs, outputs : mapping of str to path
        By the name that the command line has for them; None where not given.
    """
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
