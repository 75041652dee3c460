"""Outputs named on the command line, refused before the work and not after it."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from selfexpress.errors import DataError


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
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise DataError(
            f"{path} must be a file that can be written, but is a folder or lies in "
            "one without permission. Choose another place."
        )
