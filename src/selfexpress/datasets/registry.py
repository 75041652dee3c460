"""What each data set is: its files, checksums, counts, classes, from ``table.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class StoredFile:
    """A file in a data set's folder, or a member of an archive there.

    Attributes
    ----------
    path : str
        Path within the folder or archive, with forward slashes.
    size : int
        Bytes of the content, unpacked; the most there may be where no checksum is.
    checksum : str
        Checksum of that content, or "" where something else vouches for it.
    part : str
        The part of the data set it belongs to, "" for all of them.
    """

    path: str
    size: int
    checksum: str = ""
    part: str = ""


@dataclass(frozen=True)
class Layout:
    """One way in which a data set may lie in its folder.

    Attributes
    ----------
    reader : str
        Name of the function that reads it, see ``selfexpress.datasets.readers``.
    files : tuple of StoredFile
        Files that must be there.
    members : tuple of StoredFile
        What is read out of them, where that is not the files themselves.
    """

    reader: str
    files: tuple[StoredFile, ...]
    members: tuple[StoredFile, ...] = ()


@dataclass(frozen=True)
class Download:
    """A file to be had from the network; an empty checksum is checked after parsing."""

    path: str
    address: str
    checksum: str = ""


@dataclass(frozen=True)
class DatasetSpec:
    """All that is known about a data set before any file is opened.

    Attributes
    ----------
    name, title, citation, home : str
    class_names : tuple of str
        Name of each label; empty where every sequence has classes of its own.
    sample_shape : tuple of int
        Shape of one sample; empty where every sequence has a width of its own.
    stored : mapping
        Records in the files of each part, in the order of the full data set.
    n_samples : int
        Samples returned for all parts together (sequences of a set of sequences).
    layouts : tuple of Layout
        Tried in this order.
    downloads : tuple of Download
        Empty where no address with a known content exists.
    refused : mapping
        Files that are recognised and not read, each with the advice to give.
    first_label : int
        The stored label that becomes 0.
    """

    name: str
    title: str
    citation: str
    home: str
    class_names: tuple[str, ...]
    sample_shape: tuple[int, ...]
    stored: Mapping[str, int]
    n_samples: int
    layouts: tuple[Layout, ...]
    downloads: tuple[Download, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    first_label: int = 0

    @property
    def splits(self) -> tuple[str, ...]:
        """Names that may be asked for as a split."""
        return tuple(dict.fromkeys((*self.stored, "full")))


def _spec(name: str, known: dict[str, Any]) -> DatasetSpec:
    """Return a data set as the table describes it."""
    layouts = known.pop("layouts")
    downloads = known.pop("downloads", ())
    advice = known.pop("refused_advice", "")
    return DatasetSpec(
        name=name,
        class_names=tuple(known.pop("class_names")),
        sample_shape=tuple(known.pop("sample_shape")),
        layouts=tuple(
            Layout(
                layout["reader"],
                tuple(StoredFile(*file) for file in layout["files"]),
                tuple(StoredFile(*file) for file in layout.get("members", ())),
            )
            for layout in layouts
        ),
        downloads=tuple(Download(*item) for item in downloads),
        refused=dict.fromkeys(known.pop("refused", ()), advice),
        **known,
    )


_TABLE = files("selfexpress.datasets").joinpath("table.toml").read_text("utf-8")
SPECS = {name: _spec(name, known) for name, known in tomllib.loads(_TABLE).items()}
