"""Real data sets by name: found on disk or downloaded, verified, and read."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, overload

import numpy as np
from numpy.typing import NDArray

from selfexpress.datasets.locations import (
    Location,
    download_files,
    find,
    not_found,
    search_roots,
)
from selfexpress.datasets.readers import READERS, read_sequences
from selfexpress.datasets.registry import SPECS, DatasetSpec
from selfexpress.errors import ConfigError

__all__ = ["Dataset", "SequenceDataset", "available", "fetch", "load_dataset", "locate"]

Root = str | os.PathLike[str] | None
PlainName = Literal[
    "mnist", "fashion-mnist", "emnist-lower", "cifar10", "coil20", "orl", "ocr-letters"
]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled samples of one clustering problem.

    Attributes
    ----------
    name, split : str
    samples : ndarray
        Images, upright, of shape (N, height, width), or (N, 3, height, width) in
        colour; or rows of shape (N, D). The type is that of the files.
    labels : ndarray of shape (N,), int64
        Positions in ``class_names``.
    class_names : tuple of str
    citation : str
        What to cite when using the data set.
    """

    name: str
    split: str
    samples: NDArray[np.generic]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    citation: str

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.samples)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def rows(self) -> NDArray[np.generic]:
        """The samples as rows, (N, D); shares their memory."""
        return self.samples.reshape(len(self.samples), -1)


@dataclass(frozen=True, eq=False)
class SequenceDataset:
    """Several clustering problems that are evaluated one by one.

    Attributes
    ----------
    name, split : str
    sequences : mapping of str to Dataset
        Each with samples of shape (points, 2 * frames): u and v of a tracked point in
        every frame. The number of frames and of motions differs between sequences.
    citation : str
    """

    name: str
    split: str
    sequences: Mapping[str, Dataset]
    citation: str

    def __len__(self) -> int:
        """Number of sequences."""
        return len(self.sequences)


@overload
def load_dataset(
    name: Literal["hopkins155"],
    *,
    split: str = ...,
    root: Root = ...,
    download: bool = ...,
) -> SequenceDataset: ...
@overload
def load_dataset(
    name: PlainName, *, split: str = ..., root: Root = ..., download: bool = ...
) -> Dataset: ...
@overload
def load_dataset(
    name: str, *, split: str = ..., root: Root = ..., download: bool = ...
) -> Dataset | SequenceDataset: ...
def load_dataset(
    name: str, *, split: str = "full", root: Root = None, download: bool = True
) -> Dataset | SequenceDataset:
    """Return a data set, verified against its published checksums.

    Parameters
    ----------
    name : str
        One of ``mnist``, ``fashion-mnist``, ``emnist-lower``, ``cifar10``, ``coil20``,
        ``orl``, ``hopkins155`` and ``ocr-letters``; or a single motion sequence, such
        as ``hopkins155/1R2RC``.
    split : {"full", "train", "test"}
        The full set is the training part followed by the test part. COIL-20, ORL,
        Hopkins155 and OCR letters have no parts.
    root : path, optional
        Folder that holds a folder for each data set. Without it,
        ``$SELFEXPRESS_DATA`` and then the user's cache are searched.
    download : bool
        Whether to download what is not found, to ``root`` or the user's cache.

    Returns
    -------
    Dataset or SequenceDataset
        The latter for ``hopkins155``, whose sequences are problems of their own.

    Raises
    ------
    ConfigError
        If the name or the split does not exist.
    DataError
        If the files cannot be found or downloaded, or are not the published ones.
    """
    set_name, _, sequence = name.partition("/")
    spec = _spec(set_name)
    if split not in spec.splits:
        raise ConfigError(
            f"split must be one of {', '.join(spec.splits)} for {set_name}, got "
            f"{split!r}. Use 'full' for all samples."
        )
    if spec.sample_shape and sequence:
        raise ConfigError(
            f"{set_name} has no sequences, got {name!r}. Use {set_name!r} alone."
        )
    location = _obtain(spec, root, may_download=download)
    if spec.sample_shape:
        return read_dataset(spec, location, split=split)
    sequences = read_sequence_dataset(spec, location)
    return _pick(sequences, sequence) if sequence else sequences


def available() -> tuple[DatasetSpec, ...]:
    """Return what is known of each data set: name, counts, classes, citation."""
    return tuple(SPECS.values())


def locate(name: str, *, root: Root = None) -> Location:
    """Return where a data set's files are, without reading or downloading them."""
    return _obtain(_spec(name), root, may_download=False)


def fetch(name: str, *, root: Root = None) -> Location:
    """Return where a data set's files are, downloading them if they are nowhere."""
    return _obtain(_spec(name), root, may_download=True)


def read_dataset(spec: DatasetSpec, location: Location, *, split: str) -> Dataset:
    """Read the parts of a data set that make up a split."""
    names = tuple(spec.stored) if split == "full" else (split,)
    reader = READERS[location.layout.reader]
    parts = reader(location.folder, location.layout, spec, names)
    # Not joined where there is one: that would copy it.
    samples, labels = parts[0].samples, parts[0].labels
    if len(parts) > 1:
        samples = np.concatenate([part.samples for part in parts])
        labels = np.concatenate([part.labels for part in parts])
    return Dataset(spec.name, split, samples, labels, spec.class_names, spec.citation)


def read_sequence_dataset(spec: DatasetSpec, location: Location) -> SequenceDataset:
    """Read all sequences of a data set of sequences."""
    sequences = {}
    for name, part in read_sequences(location.folder, location.layout).items():
        motions = tuple(f"motion {i + 1}" for i in range(int(part.labels.max()) + 1))
        sequences[name] = Dataset(
            f"{spec.name}/{name}",
            "full",
            part.samples,
            part.labels,
            motions,
            spec.citation,
        )
    return SequenceDataset(spec.name, "full", sequences, spec.citation)


def _spec(name: str) -> DatasetSpec:
    """Return the description of a data set, or say which names there are."""
    if name in SPECS:
        return SPECS[name]
    close = difflib.get_close_matches(name, SPECS, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    raise ConfigError(
        f"The data set must be one of {', '.join(SPECS)}, got {name!r}.{hint}"
    )


def _obtain(spec: DatasetSpec, root: Root, *, may_download: bool) -> Location:
    """Find a data set's files, or download them to the last root searched."""
    roots = search_roots(root)
    location = find(spec, roots)
    if location is not None:
        return location
    if may_download and spec.downloads:
        return download_files(spec, roots[-1])
    advice = (
        f"Run `selfexpress data fetch {spec.name}`, or allow the download."
        if spec.downloads
        else f"There is no address to download it from in this form: see {spec.home}."
    )
    raise not_found(spec, roots, advice=advice)


def _pick(sequences: SequenceDataset, name: str) -> Dataset:
    """Return one sequence, or say which names come close."""
    if name in sequences.sequences:
        return sequences.sequences[name]
    close = difflib.get_close_matches(name, sequences.sequences, n=3)
    hint = f" Close names: {', '.join(close)}." if close else ""
    raise ConfigError(
        f"The sequence must be one of the {len(sequences)} of {sequences.name}, got "
        f"{name!r}.{hint}"
    )
