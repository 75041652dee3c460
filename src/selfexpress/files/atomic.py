"""Files that are either whole or not there."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selfexpress.errors import DataError, one_line


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a file beside ``path`` that takes its place when all went well.

    A link stays one: what it leads to is replaced. What cannot be replaced or written
    is a DataError, and then untouched.
    """
    if not path.parent.is_dir():
        raise DataError(
            f"The folder {path.parent} must exist before {path.name} can be written "
            "there. Create it."
        )
    require_replaceable(path)
    path = path.resolve()
    # Not tempfile: its files stay private to the user after the move.
    target = path.with_name(f".{secrets.token_hex(8)}{path.suffix.lower()}")
    try:
        target.touch()
        mode = target.stat().st_mode
        yield target
        target.chmod(mode)  # some writers make their files private
        with target.open("rb+") as stream:
            os.fsync(stream.fileno())
        target.replace(path)
        _sync_folder(path.parent)
    except (OSError, OverflowError) as error:
        reason = one_line(error)
        raise DataError(
            f"{path} must be writable, but is not ({reason}). Check the disk and the "
            "permissions, or choose another place."
        ) from error
    finally:
        target.unlink(missing_ok=True)


def require_replaceable(path: Path) -> None:
    """Refuse what is there if it is no file, or one that is protected."""
    if not path.exists():
        return
    if path.is_dir():
        given = "a folder"
    elif not path.is_file():
        given = "a device or a pipe"
    else:
        given = "" if path.stat().st_mode & 0o222 else "protected against writing"
    if given:
        raise DataError(
            f"{path} must be a file that can be written, but is {given}. Choose "
            "another name."
        )


def _sync_folder(folder: Path) -> None:
    """Make the new name itself survive a power cut, where folders can be synced."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows opens no folders
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
