"""Readers of the data sets' layouts: files on disk to samples and labels.

Every reader has the same signature: the folder, the layout, what is known of the data
set, and the parts wanted; it returns samples and labels for each of these parts.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from selfexpress.datasets.archives import (
    check_zip_members,
    open_zip_member,
    read_npz,
    refusing_damage,
)
from selfexpress.datasets.cifar import (
    read_cifar_archive,
    read_cifar_batches,
    read_cifar_mosaics,
)
from selfexpress.datasets.idx import parse_idx, read_idx_selected
from selfexpress.datasets.parts import Part, check_range, checked_part, files_of_part
from selfexpress.datasets.specification import DatasetSpec, Layout
from selfexpress.datasets.verified import (
    content_checksum,
    open_file,
    open_gzip,
    read_unpacked,
    read_verified,
    require_checksum,
    stream_checksum,
    unpack,
)
from selfexpress.errors import DataError
from selfexpress.files.named_arrays import check_kind, open_mat

LETTER_COLUMNS = 6


Reader = Callable[[Path, Layout, DatasetSpec, tuple[str, ...]], list[Part]]


def read_idx_pairs(
    folder: Path, layout: Layout, spec: DatasetSpec, parts: tuple[str, ...]
) -> list[Part]:
    """Read an images file and a labels file for each part, as MNIST has them."""
    return [_read_idx_pair(folder, layout, spec, part) for part in parts]


def read_emnist(
    folder: Path, layout: Layout, spec: DatasetSpec, parts: tuple[str, ...]
) -> list[Part]:
    """Read the wanted classes out of the zip of gzipped IDX files, turned upright."""
    (file,) = layout.files
    path = folder / file.path
    with open_file(path) as stream:
        found = stream_checksum(stream, file.checksum)
        require_checksum(found, file.checksum, source=str(path))
        with refusing_damage(str(path)), zipfile.ZipFile(stream) as archive:
            check_zip_members(archive, source=str(path))
            return [
                _read_emnist_part(archive, layout, spec, part=part, source=str(path))
                for part in parts
            ]


def read_mat(
    folder: Path,
    layout: Layout,
    spec: DatasetSpec,
    parts: tuple[str, ...],  # noqa: ARG001
) -> list[Part]:
    """Read ``fea`` and ``gnd`` of a MATLAB file of images stored column by column."""
    (file,) = layout.files
    path = folder / file.path
    read_verified(path, size=file.size, checksum=file.checksum)
    with refusing_damage(str(path)), open_mat(path) as container:
        for name in ("fea", "gnd"):
            check_kind(container.entries[name], "biuf", path)
        rows, labels = container.read("fea"), container.read("gnd").ravel()
        images = rows.reshape(-1, *spec.sample_shape[::-1]).transpose(0, 2, 1)
    return [checked_part(images, labels, spec, part="full", source=str(path))]


def read_letters_npz(
    folder: Path,
    layout: Layout,
    spec: DatasetSpec,
    parts: tuple[str, ...],  # noqa: ARG001
) -> list[Part]:
    """Read ``images`` and ``labels`` of an npz archive."""
    path, arrays = _read_arrays(folder, layout)
    with refusing_damage(str(path)):
        images, labels = arrays["images"], arrays["labels"]
    return [checked_part(images, labels, spec, part="full", source=str(path))]


def read_letters_text(
    folder: Path,
    layout: Layout,
    spec: DatasetSpec,
    parts: tuple[str, ...],  # noqa: ARG001
) -> list[Part]:
    """Read the tab-separated original: six columns, the second a letter, then pixels.

    It has no published checksum, so the pixels and labels read from it are checked.
    """
    (file,), (content,) = layout.files, layout.members
    path = folder / file.path
    with open_file(path) as stream:
        text, problem = unpack(stream, limit=file.size)
    letters, bits = bytearray(), bytearray()
    # Line by line and pixels unsplit: memory stays near that of the text.
    for line in io.BytesIO(text):
        *columns, pixels = line.rstrip().split(b"\t", LETTER_COLUMNS)
        if len(columns) == LETTER_COLUMNS:
            letters += columns[1]
            bits += pixels.replace(b"\t", b"")
    images = np.frombuffer(bits, np.uint8) - np.uint8(ord("0"))
    labels = np.frombuffer(letters, np.uint8) - np.uint8(ord("a"))
    found = content_checksum(images.tobytes() + labels.tobytes(), content.checksum)
    require_checksum(
        found,
        content.checksum,
        source=f"The {content.path} of {path}",
        problem=problem,
    )
    with refusing_damage(str(path)):
        images = images.reshape(-1, *spec.sample_shape)
    return [checked_part(images, labels, spec, part="full", source=str(path))]


def read_sequences(
    folder: Path, layout: Layout, spec: DatasetSpec
) -> Mapping[str, Part]:
    """Read every motion sequence: a row holds u, v of one point in each frame."""
    path, arrays = _read_arrays(folder, layout)
    names = sorted(name.removesuffix("__x") for name in arrays if name.endswith("__x"))
    if len(names) != spec.stored["full"] or len(arrays) != 2 * len(names):
        raise DataError(
            f"{path} must hold {spec.stored['full']} sequences of two arrays, got "
            f"{len(names)} and {len(arrays)} arrays. Fetch the data set again."
        )
    return MappingProxyType(
        {name: _read_sequence(arrays, name, source=str(path)) for name in names}
    )


READERS: Mapping[str, Reader] = MappingProxyType(
    {
        "idx": read_idx_pairs,
        "emnist": read_emnist,
        "cifar-batches": read_cifar_batches,
        "cifar-archive": read_cifar_archive,
        "cifar-mosaics": read_cifar_mosaics,
        "mat": read_mat,
        "letters-npz": read_letters_npz,
        "letters-text": read_letters_text,
    }
)


def _read_idx_pair(folder: Path, layout: Layout, spec: DatasetSpec, part: str) -> Part:
    """Read the images and labels of one part."""
    image_file, label_file = files_of_part(layout.files, part)
    n_stored = spec.stored[part]
    shapes = ((n_stored, *spec.sample_shape), (n_stored,))
    images, labels = (
        parse_idx(
            read_unpacked(folder / file.path, size=file.size, checksum=file.checksum),
            shape,
            source=str(folder / file.path),
        )
        for file, shape in zip((image_file, label_file), shapes, strict=True)
    )
    return checked_part(images, labels, spec, part=part, source=str(folder))


def _read_emnist_part(
    archive: zipfile.ZipFile,
    layout: Layout,
    spec: DatasetSpec,
    *,
    part: str,
    source: str,
) -> Part:
    """Read labels first, then stream the images and keep those of the classes."""
    image_file, label_file = files_of_part(layout.members, part)
    shape = (spec.stored[part], *spec.sample_shape[::-1])
    with open_zip_member(
        archive, label_file.path, folders=("gzip",), source=source
    ) as stream:
        everything = np.ones(shape[0], bool)
        labels = read_idx_selected(
            open_gzip(stream),
            shape[:1],
            keep=everything,
            source=f"{label_file.path} in {source}",
        )
    n_stored_classes = spec.n_stored_classes or len(spec.class_names)
    check_range(labels, 0, n_stored_classes, source=f"{label_file.path} in {source}")
    last_label = spec.first_label + len(spec.class_names) - 1
    keep = (labels >= spec.first_label) & (labels <= last_label)
    with open_zip_member(
        archive, image_file.path, folders=("gzip",), source=source
    ) as stream:
        images = read_idx_selected(
            open_gzip(stream), shape, keep=keep, source=f"{image_file.path} in {source}"
        )
    upright = np.ascontiguousarray(images.transpose(0, 2, 1))
    return Part(upright, labels[keep].astype(np.int64) - spec.first_label)


def _read_arrays(
    folder: Path, layout: Layout
) -> tuple[Path, dict[str, NDArray[np.generic]]]:
    """Return the path and the arrays of a layout that is one npz archive."""
    (file,), (unpacked,) = layout.files, layout.members
    path = folder / file.path
    content = read_verified(path, size=file.size, checksum=file.checksum)
    return path, read_npz(content, limit=unpacked.size, source=str(path))


def _read_sequence(
    arrays: Mapping[str, NDArray[np.generic]], name: str, *, source: str
) -> Part:
    """Return the trajectories (points, 2 * frames) and motions of one sequence."""
    with refusing_damage(source):
        tracks, motions = arrays[f"{name}__x"], arrays[f"{name}__s"]
        n_homogeneous, n_points, n_frames = tracks.shape
    is_whole = n_homogeneous == 3 and motions.shape == (n_points,)
    if not is_whole or not np.isfinite(tracks).all():
        raise DataError(
            f"Sequence {name} of {source} must hold finite (3, points, frames) "
            f"coordinates and a label a point, got shapes {tracks.shape} and "
            f"{motions.shape}. Fetch the data set again."
        )
    labels = motions.astype(np.int64) - 1
    check_range(labels, 0, len(np.unique(labels)), source=f"{name} in {source}")
    rows = tracks[:2].transpose(1, 2, 0).reshape(n_points, 2 * n_frames)
    return Part(rows.astype(np.float64), labels)
