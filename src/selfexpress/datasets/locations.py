"""Where the files of a data set are, and how they get there.

A data set's files lie in a folder of its name under a root. Roots are tried in this
order: the folder given, or else ``$SELFEXPRESS_DATA`` and then the user's cache.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from selfexpress.datasets.readers import READERS
from selfexpress.datasets.registry import DatasetSpec, Download, Layout
from selfexpress.errors import DataError, IgnoredSettingWarning, one_line

ENVIRONMENT_VARIABLE = "SELFEXPRESS_DATA"
TRANSFER_BYTES = 1 << 16


@dataclass(frozen=True)
class Location:
    """Where a data set was found, and in which of its layouts."""

    folder: Path
    layout: Layout

    @property
    def files(self) -> tuple[Path, ...]:
        """Paths of all files that are read."""
        return tuple(self.folder / file.path for file in self.layout.files)


def search_roots(root: str | os.PathLike[str] | None = None) -> list[Path]:
    """Return the folders to look in, first to last; downloads go to the last."""
    if root is not None:
        return [Path(root)]
    roots = [user_cache()]
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    if named and Path(named).is_dir():
        roots.insert(0, Path(named))
    elif named:
        warnings.warn(
            f"{ENVIRONMENT_VARIABLE} must name a folder, got {named!r}, and is "
            "ignored. Create the folder or unset the variable.",
            IgnoredSettingWarning,
            stacklevel=4,
        )
    return roots


def user_cache() -> Path:
    """Return the folder in which this user's downloads are kept."""
    import pooch

    return Path(pooch.os_cache("selfexpress"))


def find(spec: DatasetSpec, roots: list[Path]) -> Location | None:
    """Return the first root's first layout whose files are all there.

    Files that are refused on purpose are a DataError where there is none.
    """
    for root in roots:
        folder = root / spec.name
        for layout in spec.layouts:
            if all((folder / file.path).is_file() for file in layout.files):
                return Location(folder, layout)
        for name, advice in spec.refused.items():
            if (folder / name).exists():
                raise DataError(f"{folder / name} is not read: {advice}")
    return None


def not_found(spec: DatasetSpec, roots: list[Path], *, advice: str) -> DataError:
    """Return the error that says which files were looked for, and where."""
    layouts = " or ".join(
        ", ".join(file.path for file in layout.files) for layout in spec.layouts
    )
    folders = " or ".join(str(root / spec.name) for root in roots)
    return DataError(
        f"{spec.name} must lie in {folders} as {layouts}, and does not. {advice}"
    )


def download_files(spec: DatasetSpec, root: Path) -> Location:
    """Download the files of a data set to its folder under ``root``, each checked."""
    folder = root / spec.name
    for item in spec.downloads:
        _retrieve(item, folder, name=spec.name)
    location = find(spec, [root])
    assert location is not None, "the downloads make up one of the layouts"
    if not all(item.checksum for item in spec.downloads):
        _verify_by_reading(spec, location)
    return location


def _retrieve(item: Download, folder: Path, *, name: str) -> None:
    """Download one file with pooch, showing progress on standard error."""
    import pooch

    try:
        bar = TransferBar(item.path)
        with bar.progress:
            pooch.retrieve(
                item.address,
                known_hash=item.checksum or None,
                fname=item.path,
                path=folder,
                downloader=pooch.HTTPDownloader(
                    progressbar=bar, chunk_size=TRANSFER_BYTES
                ),
            )
    # requests' own errors are OSErrors; a wrong checksum is a ValueError.
    except (OSError, ValueError) as error:
        is_checksum = isinstance(error, ValueError)
        reason = str(error) if is_checksum else one_line(error, longest=120)
        raise DataError(
            f"{name} could not be downloaded from {item.address} ({reason}). Try "
            f"again, put the file into {folder} yourself, or name a folder that holds "
            f"{name}/ by {ENVIRONMENT_VARIABLE}."
        ) from error


def _verify_by_reading(spec: DatasetSpec, location: Location) -> None:
    """Read a fresh download and delete it if its content is not the expected one."""
    try:
        READERS[location.layout.reader](
            location.folder, location.layout, spec, tuple(spec.stored)
        )
    except DataError:
        for path in location.files:
            path.unlink(missing_ok=True)
        raise


class TransferBar:
    """A progress bar on standard error, in the shape that pooch drives."""

    def __init__(self, title: str) -> None:
        self.total = 0
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self.progress.add_task(title, total=None)
        self.reset = partial(self.progress.reset, self._task)
        self.close = self.progress.refresh

    def update(self, n_bytes: int) -> None:
        """Move on by ``n_bytes``."""
        self.progress.update(self._task, total=self.total or None, advance=n_bytes)
