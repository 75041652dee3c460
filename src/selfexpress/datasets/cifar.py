"""CIFAR-10 in its three layouts: batch files, their archive, and lossless mosaics.

A batch is 10,000 records of 3,073 bytes: a label, then 32x32 pixels of red, green and
blue. Whatever the layout, each batch must have its published checksum.
"""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from selfexpress.datasets.archives import parse_npy, read_tar_members
from selfexpress.datasets.parts import Part, check_range, files_of_part
from selfexpress.datasets.specification import DatasetSpec, Layout, StoredFile
from selfexpress.datasets.verified import (
    content_checksum,
    open_file,
    open_gzip,
    read_verified,
    require_checksum,
    stream_checksum,
)
from selfexpress.errors import DataError, one_line

RECORD_BYTES = 3073
TILE_SIDE = 32


def read_cifar_batches(
    folder: Path, layout: Layout, spec: DatasetSpec, parts: tuple[str, ...]
) -> list[Part]:
    """Read the unpacked batch files of CIFAR's binary version."""
    return [
        _join_batches(
            [
                read_verified(
                    folder / file.path, size=file.size, checksum=file.checksum
                )
                for file in files_of_part(layout.files, part)
            ],
            spec,
            source=str(folder),
        )
        for part in parts
    ]


def read_cifar_archive(
    folder: Path, layout: Layout, spec: DatasetSpec, parts: tuple[str, ...]
) -> list[Part]:
    """Read the batches of CIFAR's binary version from their ``.tar.gz``."""
    (file,) = layout.files
    path = folder / file.path
    wanted = {part: files_of_part(layout.members, part) for part in parts}
    sizes = {batch.path: batch.size for part in parts for batch in wanted[part]}
    with open_file(path) as stream:
        try:
            contents = read_tar_members(
                open_gzip(stream), sizes, limit=file.size, source=str(path)
            )
        except DataError as error:
            stream.seek(0)
            found = stream_checksum(stream, file.checksum)
            require_checksum(found, file.checksum, source=str(path), problem=str(error))
    for batch in layout.members:
        if batch.path in contents:
            _check_content(contents[batch.path], batch, source=str(path))
    return [
        _join_batches(
            [contents[batch.path] for batch in wanted[part]], spec, source=str(path)
        )
        for part in parts
    ]


def read_cifar_mosaics(
    folder: Path, layout: Layout, spec: DatasetSpec, parts: tuple[str, ...]
) -> list[Part]:
    """Read batches kept as lossless WebP mosaics and one array of labels.

    Each batch is rebuilt byte for byte and must have its published checksum.
    """
    *mosaics, labels_file = layout.files
    labels = _read_mosaic_labels(folder / labels_file.path, labels_file, layout)
    batches = list(zip(mosaics, layout.members, labels, strict=True))
    return [
        _join_batches(
            [
                _rebuild_batch(folder / mosaic.path, batch, batch_labels)
                for mosaic, batch, batch_labels in batches
                if batch.part == part
            ],
            spec,
            source=str(folder),
        )
        for part in parts
    ]


def _join_batches(batches: list[bytes], spec: DatasetSpec, *, source: str) -> Part:
    """Return the images and labels of verified batches of CIFAR records."""
    n_records = [len(batch) // RECORD_BYTES for batch in batches]
    images = np.empty((sum(n_records), *spec.sample_shape), np.uint8)
    labels = np.empty(len(images), np.int64)
    stop = 0
    for batch, n in zip(batches, n_records, strict=True):
        start, stop = stop, stop + n
        records = np.frombuffer(batch, np.uint8).reshape(n, RECORD_BYTES)
        labels[start:stop] = records[:, 0]
        images[start:stop].reshape(n, -1)[:] = records[:, 1:]
    check_range(labels, 0, len(spec.class_names), source=source)
    return Part(images, labels)


def _check_content(content: bytes, file: StoredFile, *, source: str) -> None:
    """Raise DataError unless ``content`` has the checksum of ``file``."""
    found = content_checksum(content, file.checksum)
    require_checksum(found, file.checksum, source=f"{file.path} in {source}")


def _read_mosaic_labels(
    path: Path, file: StoredFile, layout: Layout
) -> list[NDArray[np.uint8]]:
    """Return the labels of each batch."""
    content = read_verified(path, size=file.size, checksum=file.checksum)
    labels = parse_npy(content, source=str(path))
    counts = [batch.size // RECORD_BYTES for batch in layout.members]
    if labels.shape != (sum(counts),) or labels.dtype != np.uint8:
        raise DataError(
            f"{path} must hold {sum(counts)} labels as uint8, got shape {labels.shape} "
            f"and dtype {labels.dtype}. Use the labels that belong to the mosaics."
        )
    return np.split(labels.astype(np.uint8), np.cumsum(counts)[:-1])


def _rebuild_batch(path: Path, batch: StoredFile, labels: NDArray[np.uint8]) -> bytes:
    """Return the batch file that a mosaic and its labels were made from."""
    n_tiles = math.isqrt(len(labels))
    pixels = _decode_mosaic(path, batch, side=n_tiles * TILE_SIDE)  # (side, side, 3)
    tiles = pixels.reshape(n_tiles, TILE_SIDE, n_tiles, TILE_SIDE, 3)
    images = tiles.transpose(0, 2, 4, 1, 3).reshape(n_tiles**2, -1)  # (N, 3072)
    content = np.concatenate([labels[:, None], images], axis=1).tobytes()
    _check_content(content, batch, source=f"{path} and its labels")
    return content


def _decode_mosaic(path: Path, batch: StoredFile, *, side: int) -> NDArray[np.uint8]:
    """Return the pixels of a square mosaic, decoded only if it has the right size."""
    with open_file(path) as stream:
        # Lossless: a mosaic larger than the pixels it holds is no such mosaic.
        content = stream.read(batch.size + 1)
    try:
        if _webp_size(content) != (side, side) or len(content) > batch.size:
            raise ValueError(f"it is not a lossless WebP image of {side}x{side} pixels")
        return _decode_webp(content)
    except (OSError, EOFError, ValueError, SyntaxError) as error:
        raise DataError(
            f"{path} must be the mosaic of {batch.path} with checksum "
            f"{batch.checksum}, but cannot be decoded: {one_line(error)}. The file "
            f"itself has the checksum {content_checksum(content, batch.checksum)}; "
            "replace it."
        ) from error


def _webp_size(content: bytes) -> tuple[int, int] | None:
    """Return width and height from a lossless WebP header, None if it is not one.

    Pillow allocates by the size that an image states, so it is looked at before.
    """
    if content[:4] != b"RIFF" or content[8:16] != b"WEBPVP8L" or content[20:21] != b"/":
        return None
    bits = int.from_bytes(content[21:25], "little")
    return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)


def _decode_webp(content: bytes) -> NDArray[np.uint8]:
    """Return the pixels (height, width, 3) of a WebP image."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError(
            "WebP mosaics of CIFAR-10 need Pillow, which is not installed. Install "
            "it, or use cifar-10-binary.tar.gz."
        ) from error
    with Image.open(io.BytesIO(content), formats=("WEBP",)) as image:
        return np.asarray(image.convert("RGB"))
