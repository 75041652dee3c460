"""The files of data sets to samples and labels.

Content is compared with its published checksum before it is parsed, so that ordinary
libraries may parse it. A reader takes the folder, the layout, what is known of the data
set and the parts wanted, and returns samples and labels of each of these parts.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from selfexpress.datasets.registry import DatasetSpec, Layout, StoredFile
from selfexpress.errors import DataError, one_line

_GZIP_MAGIC = b"\x1f\x8b"
_IMAGES_PER_READ = 4096
_LETTER_COLUMNS = 6
_RECORD_BYTES = 3073  # of CIFAR: a label, then 32 x 32 pixels of red, green and blue
_TILE_SIDE = 32


@dataclass(frozen=True, eq=False)
class Part:
    """Samples (N, ...) of one part of a data set, with labels (N,) from 0."""

    samples: NDArray[np.generic]
    labels: NDArray[np.int64]


Reader = Callable[[Path, Layout, DatasetSpec, tuple[str, ...]], list[Part]]


def read_idx_pairs(
    folder: Path, layout: Layout, spec: DatasetSpec, parts: tuple[str, ...]
) -> list[Part]:
    """Read an images file and a labels file for each part, as MNIST has them."""

    def read(file: StoredFile, *shape: int) -> NDArray[np.uint8]:
        content = read_content(folder, file)
        return np.frombuffer(content, np.uint8, offset=_idx_header_bytes(shape))

    found = []
    for part in parts:
        images, labels = _of_part(layout.files, part)
        shape = (spec.stored[part], *spec.sample_shape)
        pixels = read(images, *shape).reshape(shape)
        found.append(_part(pixels, read(labels, shape[0]), spec))
    return found


def read_emnist(
    folder: Path, layout: Layout, spec: DatasetSpec, parts: tuple[str, ...]
) -> list[Part]:
    """Read the wanted classes out of the zip of gzipped IDX files, turned upright.

    Memory holds the kept images and one block of the others, never all.
    """
    (file,) = layout.files
    path = folder / file.path
    _require_checksum(_file_checksum(path, file.checksum), file.checksum, str(path))
    found = []
    with zipfile.ZipFile(path) as archive:
        for part in parts:
            images, labels = (
                _member(archive, member) for member in _of_part(layout.members, part)
            )
            shape = (spec.stored[part], *spec.sample_shape[::-1])
            with gzip.open(archive.open(labels)) as stream:
                stream.read(_idx_header_bytes(shape[:1]))
                classes = np.frombuffer(stream.read(), np.uint8)
            wanted = (classes >= spec.first_label) & (
                classes < spec.first_label + len(spec.class_names)
            )
            blocks = []
            with gzip.open(archive.open(images)) as stream:
                stream.read(_idx_header_bytes(shape))
                for start in range(0, len(wanted), _IMAGES_PER_READ):
                    chosen = wanted[start : start + _IMAGES_PER_READ]
                    block = stream.read(len(chosen) * math.prod(shape[1:]))
                    pixels = np.frombuffer(block, np.uint8).reshape(-1, *shape[1:])
                    blocks.append(pixels[chosen].transpose(0, 2, 1))
            found.append(_part(np.concatenate(blocks), classes[wanted], spec))
    return found


def read_mat(
    folder: Path, layout: Layout, spec: DatasetSpec, _parts: tuple[str, ...]
) -> list[Part]:
    """Read ``fea`` and ``gnd`` of a MATLAB file of images stored column by column."""
    from scipy.io import loadmat

    arrays = loadmat(io.BytesIO(read_content(folder, layout.files[0])))
    images = arrays["fea"].reshape(-1, *spec.sample_shape[::-1]).transpose(0, 2, 1)
    return [_part(images, arrays["gnd"].ravel(), spec)]


def read_letters_npz(
    folder: Path, layout: Layout, spec: DatasetSpec, _parts: tuple[str, ...]
) -> list[Part]:
    """Read ``images`` and ``labels`` of an npz archive."""
    arrays = _read_npz(folder, layout)
    return [_part(arrays["images"], arrays["labels"], spec)]


def read_letters_text(
    folder: Path, layout: Layout, spec: DatasetSpec, _parts: tuple[str, ...]
) -> list[Part]:
    """Read the tab-separated original: six columns, the second a letter, then pixels.

    It has no published checksum, so the pixels and labels read from it are checked.
    """
    (file,), (content,) = layout.files, layout.members
    text, problem = _unpacked(folder / file.path, file.size)
    letters, bits = bytearray(), bytearray()
    # Line by line and pixels unsplit: memory stays near that of the text.
    for line in io.BytesIO(text):
        *columns, pixels = line.rstrip().split(b"\t", _LETTER_COLUMNS)
        if len(columns) == _LETTER_COLUMNS:
            letters += columns[1]
            bits += pixels.replace(b"\t", b"")
    images = np.frombuffer(bits, np.uint8) - np.uint8(ord("0"))
    labels = np.frombuffer(letters, np.uint8) - np.uint8(ord("a"))
    _require_checksum(
        _checksum(images.tobytes() + labels.tobytes(), content.checksum),
        content.checksum,
        f"The {content.path} of {folder / file.path}",
        problem,
    )
    return [_part(images.reshape(-1, *spec.sample_shape), labels, spec)]


def read_sequences(folder: Path, layout: Layout) -> Mapping[str, Part]:
    """Read every motion sequence: a row holds u, v of one point in each frame."""
    arrays = _read_npz(folder, layout)
    names = sorted(name.removesuffix("__x") for name in arrays if name.endswith("__x"))
    found = {}
    for name in names:
        tracks, motions = arrays[f"{name}__x"], arrays[f"{name}__s"]
        rows = tracks[:2].transpose(1, 2, 0).reshape(tracks.shape[1], -1)
        found[name] = Part(rows.astype(np.float64), motions.astype(np.int64) - 1)
    return found


def read_cifar_batches(
    folder: Path, layout: Layout, spec: DatasetSpec, parts: tuple[str, ...]
) -> list[Part]:
    """Read the unpacked batch files of CIFAR's binary version."""
    return [
        _join_batches(
            [read_content(folder, file) for file in _of_part(layout.files, part)], spec
        )
        for part in parts
    ]


def read_cifar_archive(
    folder: Path, layout: Layout, spec: DatasetSpec, parts: tuple[str, ...]
) -> list[Part]:
    """Read the batches of CIFAR's binary version from their ``.tar.gz``."""
    (file,) = layout.files
    path = folder / file.path
    _require_checksum(_file_checksum(path, file.checksum), file.checksum, str(path))
    # One walk: to go back in a packed archive is to unpack it again.
    wanted = {batch.path for batch in layout.members if batch.part in parts}
    with tarfile.open(path) as archive:
        contents = {
            member.name: stream.read()
            for member in archive
            if member.name in wanted and (stream := archive.extractfile(member))
        }
    return [
        _join_batches(
            [contents[batch.path] for batch in _of_part(layout.members, part)], spec
        )
        for part in parts
    ]


def read_cifar_mosaics(
    folder: Path, layout: Layout, spec: DatasetSpec, parts: tuple[str, ...]
) -> list[Part]:
    """Read batches kept as lossless WebP mosaics and one array of labels.

    Each batch is rebuilt byte for byte and must have its published checksum.
    """
    *mosaics, file = layout.files
    labels = np.load(io.BytesIO(read_content(folder, file)), allow_pickle=False)
    counts = [batch.size // _RECORD_BYTES for batch in layout.members]
    of_batch = np.split(labels, np.cumsum(counts)[:-1])
    batches = list(zip(mosaics, layout.members, of_batch, strict=True))
    return [
        _join_batches(
            [
                _rebuild_batch(folder / mosaic.path, batch, batch_labels)
                for mosaic, batch, batch_labels in batches
                if batch.part == part
            ],
            spec,
        )
        for part in parts
    ]


READERS: dict[str, Reader] = {
    "idx": read_idx_pairs,
    "emnist": read_emnist,
    "cifar-batches": read_cifar_batches,
    "cifar-archive": read_cifar_archive,
    "cifar-mosaics": read_cifar_mosaics,
    "mat": read_mat,
    "letters-npz": read_letters_npz,
    "letters-text": read_letters_text,
}


def read_content(folder: Path, file: StoredFile) -> bytes:
    """Return what a file holds, gunzipped, with its published size and checksum."""
    path = folder / file.path
    content, problem = _unpacked(path, file.size)
    found = _checksum(content, file.checksum)
    _require_checksum(found, file.checksum, f"The content of {path}", problem)
    return content


def _unpacked(path: Path, most: int) -> tuple[bytes, str]:
    """Return up to ``most`` bytes, gunzipped, and what is wrong with them.

    A ``.gz`` that is not gzip is taken as it is: servers and browsers are known to
    unpack such files on the way.
    """
    try:
        with path.open("rb") as start:
            is_gzip = start.read(2) == _GZIP_MAGIC
        with gzip.open(path) if is_gzip else path.open("rb") as stream:
            content = stream.read(most + 1)
    except FileNotFoundError as error:
        raise DataError(
            f"{path} must be a file, and it is not. Fetch the data set again."
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        return b"", f"it cannot be read: {one_line(error)}"
    goes_on = len(content) > most
    return content[:most], f"it goes on after {most} bytes" if goes_on else ""


def _file_checksum(path: Path, like: str) -> str:
    algorithm = like.partition(":")[0]
    with path.open("rb") as stream:
        digest = hashlib.file_digest(
            stream, lambda: hashlib.new(algorithm, usedforsecurity=False)
        )
    return f"{algorithm}:{digest.hexdigest()}"


def _checksum(content: bytes, like: str) -> str:
    """Return the checksum of ``content`` with the algorithm that ``like`` names."""
    algorithm = like.partition(":")[0]
    digest = hashlib.new(algorithm, content, usedforsecurity=False)
    return f"{algorithm}:{digest.hexdigest()}"


def _require_checksum(
    found: str, expected: str, source: str, problem: str = ""
) -> None:
    if found != expected or problem:
        detail = f" ({problem})" if problem else ""
        raise DataError(
            f"{source} must have the checksum {expected}, found {found}{detail}. It is "
            "damaged or not the published file: delete it and fetch the data set again."
        )


def _part(
    samples: NDArray[np.generic], labels: NDArray[np.generic], spec: DatasetSpec
) -> Part:
    # Contiguous and writable: torch.from_numpy wants both.
    samples = np.require(samples, requirements=["C", "W"])
    return Part(samples, labels.astype(np.int64) - spec.first_label)


def _of_part(files: tuple[StoredFile, ...], part: str) -> list[StoredFile]:
    return [file for file in files if file.part == part]


def _member(archive: zipfile.ZipFile, file: StoredFile) -> str:
    """Return the name of a member, which may lie in a folder of the archive."""
    names = archive.namelist()
    return next(name for name in names if name.rpartition("/")[2] == file.path)


def _idx_header_bytes(shape: tuple[int, ...]) -> int:
    """Two zeros, the type, the number of dimensions, and four bytes for each."""
    return 4 + 4 * len(shape)


def _read_npz(folder: Path, layout: Layout) -> dict[str, NDArray[np.generic]]:
    content = read_content(folder, layout.files[0])
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        return dict(archive)


def _join_batches(batches: list[bytes], spec: DatasetSpec) -> Part:
    """Return the images and labels of batches of CIFAR records."""
    records = np.frombuffer(b"".join(batches), np.uint8).reshape(-1, _RECORD_BYTES)
    images = records[:, 1:].reshape(-1, *spec.sample_shape)
    return _part(images, records[:, 0], spec)


def _rebuild_batch(path: Path, batch: StoredFile, labels: NDArray[np.generic]) -> bytes:
    """Return the batch file that a mosaic and its labels were made from."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError(
            "WebP mosaics of CIFAR-10 need Pillow, which is not installed. Install "
            "it, or use cifar-10-binary.tar.gz."
        ) from error
    n_tiles = math.isqrt(len(labels))
    try:
        with Image.open(path, formats=("WEBP",)) as image:
            # Before it is decoded: an image claims any size.
            if image.size != (n_tiles * _TILE_SIDE,) * 2:
                raise ValueError(f"it has {image.size} pixels")
            pixels = np.asarray(image.convert("RGB"))  # (side, side, 3)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(
            f"{path} must be the mosaic of {batch.path} with checksum "
            f"{batch.checksum}, but cannot be decoded: {one_line(error)}. Replace it."
        ) from error
    tiles = pixels.reshape(n_tiles, _TILE_SIDE, n_tiles, _TILE_SIDE, 3)
    images = tiles.transpose(0, 2, 4, 1, 3).reshape(n_tiles**2, -1)  # (N, 3072)
    content = np.concatenate([labels[:, None], images], axis=1).tobytes()
    found = _checksum(content, batch.checksum)
    source = f"{batch.path} in {path} and its labels"
    _require_checksum(found, batch.checksum, source)
    return content
