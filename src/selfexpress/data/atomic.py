"""Files that are either whole or not there."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selfexpress.errors import DataError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a file beside ``path`` that takes its place when all went well.

    Raises
    ------
    DataError
        If the folder is missing or cannot be written to; ``path`` is then untouched.
    """
    if not path.parent.is_dir():
        raise DataError(
            f"The folder {path.parent} must exist before {path.name} can be written "
            "there. Create it."
        )
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
    except (OSError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{path} must be writable, but is not ({reason}). Check the disk and the "
            "permissions, or choose another place."
        ) from error
    finally:
        target.unlink(missing_ok=True)
