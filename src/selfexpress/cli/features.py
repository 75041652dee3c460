"""``selfexpress features``: turn images or rows into features, block by block."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from torch import Tensor

from selfexpress.cli.options import parse_count
from selfexpress.cli.outputs import require_apart, require_writable
from selfexpress.cli.rows import read_rows
from selfexpress.cli.stages import rows_bar
from selfexpress.datasets.loading import Dataset, load_dataset
from selfexpress.errors import ConfigError, DataError
from selfexpress.features.scattering import Scattering2D
from selfexpress.features.whitening import Whitening
from selfexpress.files.arrays import FORMATS, read_array, write_array
from selfexpress.files.atomic import replacing
from selfexpress.ops.devices import resolve_device
from selfexpress.rows.opening import as_source
from selfexpress.rows.sources import (
    ArraySource,
    CheckedRows,
    MappedSource,
    RowSource,
    row_dtype,
)


def features(
    data: Annotated[str, typer.Argument(help="File, or a data set's name.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")],
    scattering: Annotated[
        bool, typer.Option("--scattering", help="Wavelet scattering of images.")
    ] = False,
    whiten: Annotated[
        Any,
        typer.Option(
            help="Keep this many principal components, levelled; or auto.",
            parser=parse_count,
            metavar="INTEGER|auto",
        ),
    ] = None,
    project: Annotated[
        int | None,
        typer.Option(help="Keep this many principal components, not levelled."),
    ] = None,
    projection: Annotated[
        Path | None,
        typer.Option(
            help="Components: kept there with --whiten or --project, else taken from "
            "there, for new rows."
        ),
    ] = None,
    paper: Annotated[
        bool,
        typer.Option(
            "--paper",
            help="The paper's features: --scattering --resize 32 --project 500.",
        ),
    ] = False,
    resize: Annotated[
        int | None, typer.Option(help="Side that images are first resized to.")
    ] = None,
    image_shape: Annotated[
        str | None,
        typer.Option(help="Shape of images stored as rows: 28x28, or 3x32x32."),
    ] = None,
    scales: Annotated[
        int | None, typer.Option(help="Scales J of the scattering; 3 unless given.")
    ] = None,
    angles: Annotated[
        int | None, typer.Option(help="Angles L of the scattering; 8 unless given.")
    ] = None,
    center: Annotated[
        bool, typer.Option("--center", help="Subtract the mean before projecting.")
    ] = False,
    split: Annotated[
        str | None, typer.Option(help="Part of a data set: full, train or test.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Array or column of DATA to read.")
    ] = None,
    block_size: Annotated[int, typer.Option(help="Rows handled at once.")] = 4096,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, for machines.")
    ] = False,
) -> None:
    """Write the features of DATA, one row a sample, in single precision.

    Memory does not grow with the data for .npy files: rows are read, mapped and
    written in blocks, and computed twice where the components must be found first.

    Example: selfexpress features rows.npy -o white.npy --whiten auto --projection p

    Then: selfexpress features new.npy -o new-white.npy --projection p
    """
    if paper:
        scattering, resize, project = True, resize or 32, project or 500
    components = _new_components(whiten, project, center=center, block_size=block_size)
    is_new = components is not None
    taken, kept = (None, projection) if is_new else (projection, None)
    if taken is not None:
        components = Whitening.load(taken)
    if not scattering and components is None:
        raise ConfigError(
            "At least one of --scattering, --whiten, --project, --projection and "
            "--paper must be given, got none. Say which features to compute."
        )
    _require_used(
        ("--scattering", scattering, {"resize": resize, "image-shape": image_shape}),
        ("--scattering", scattering, {"scales": scales, "angles": angles}),
        ("--whiten or --project", is_new, {"center": center or None}),
        ("a data set's name", not _is_file(data), {"split": split}),
    )
    require_writable(output, suffixes=FORMATS)
    if kept is not None:
        require_writable(kept)
    require_apart(
        {"DATA": data, "--projection": taken},
        {"--output": output, "--projection": kept},
    )
    on = resolve_device(device)
    if scattering:
        samples = _read_samples(data, name=name, split=split or "full")
        sizes: dict[str, Any] = {"J": scales, "L": angles, "resize": resize}
        transformer = Scattering2D(
            image_shape=_parse_shape(image_shape),
            **{name: size for name, size in sizes.items() if size is not None},
        ).fit(samples[:1])
        source = _of_images(samples, transformer, on)
    else:
        rows = _read_rows(data, name=name, split=split or "full")
        source = CheckedRows(rows, device=on)
    stages = _Stages(quiet=quiet)
    if components is not None:
        if is_new:
            with stages.watched("finding components", source) as counted:
                components.fit(counted)
        if kept is not None:
            components.save(kept)
        source = components.stream(source)
    with stages.watched("writing features", source) as counted:
        _write(output, counted, block_size)
    _report(
        output, source, components if is_new else None, stages.seconds, as_json=as_json
    )


def _require_used(*groups: tuple[str, bool, Mapping[str, object]]) -> None:
    """Refuse options without what they need; they would be ignored."""
    for needed, is_there, options in groups:
        for name, value in options.items():
            if value is not None and not is_there:
                raise ConfigError(
                    f"--{name} must come with {needed}, got {value} without. Leave it "
                    "out, or add that."
                )


def _is_file(data: str) -> bool:
    """Tell files and folders from names of data sets."""
    return Path(data).is_dir() or Path(data).suffix.lower() in FORMATS


def _of_images(
    samples: NDArray[Any],
    transformer: Scattering2D,
    device: torch.device,
) -> RowSource:
    """Return the features that a fitted transformer computes of images."""
    dtype = torch.uint8 if samples.dtype == np.uint8 else row_dtype(samples)
    flat = samples.reshape(len(samples), -1)
    source = ArraySource(flat, dtype=dtype, device=device)

    def transform(rows: Tensor) -> Tensor:
        images = rows.view(len(rows), *samples.shape[1:])
        return torch.as_tensor(transformer.transform(images))

    return MappedSource(source, transform, len(transformer.get_feature_names_out()))


class _Stages:
    """Progress bars on stderr and the seconds of each stage."""

    def __init__(self, *, quiet: bool) -> None:
        self.seconds: dict[str, float] = {}
        self._quiet = quiet

    @contextmanager
    def watched(self, name: str, source: RowSource) -> Iterator[RowSource]:
        """Yield the same rows; walking them moves the bar."""
        start = time.perf_counter()
        with rows_bar(quiet=self._quiet) as progress:
            task = progress.add_task(name, total=len(source))

            def count(rows: Tensor) -> Tensor:
                progress.advance(task, len(rows))
                return rows

            yield MappedSource(source, count)
        self.seconds[name] = time.perf_counter() - start


def _new_components(
    whiten: int | str | None, project: int | None, *, center: bool, block_size: int
) -> Whitening | None:
    if whiten is not None and project is not None:
        raise ConfigError(
            f"Only one of --whiten and --project may be given, got {whiten} and "
            f"{project}. --whiten levels the components, --project does not."
        )
    n_components = whiten if project is None else project
    if n_components is None:
        return None
    return Whitening(
        n_components, center=center, whiten=project is None, block_size=block_size
    )


def _read_rows(data: str, *, name: str | None, split: str) -> RowSource:
    """Return rows of a file, folder or data set, with the names of their columns."""
    read = read_rows if _is_file(data) else partial(_read_samples, split=split)
    rows = read(data, name=name)
    return as_source(rows) if isinstance(rows, np.ndarray) else rows


def _read_samples(data: str, *, name: str | None, split: str) -> NDArray[Any]:
    """Return images; a ``.npy`` file stays on disk."""
    if Path(data).is_dir():
        raise DataError(f"Images must lie in one file, got the folder {data}. Join it.")
    if _is_file(data):
        return read_array(data, name=name, mmap=True)
    dataset = load_dataset(data, split=split)
    if not isinstance(dataset, Dataset):
        raise DataError(
            f"{data} holds {len(dataset)} problems, not one table of rows. "
            f"Name one of them, such as {data}/{next(iter(dataset.sequences))}."
        )
    return dataset.samples


def _parse_shape(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    if not re.fullmatch(r"\d+(x\d+){1,2}", text):
        raise ConfigError(
            f"--image-shape must look like 28x28 or 3x32x32, got {text!r}. "
            "Give the height and width, after the number of channels if several."
        )
    return tuple(int(side) for side in text.split("x"))


def _write(output: Path, source: RowSource, block_size: int) -> None:
    """Write all rows; a ``.npy`` file is filled on disk, others go through memory."""
    shape = (len(source), source.n_features)
    if output.suffix.lower() != ".npy":
        rows = np.empty(shape, np.float32)
        _fill(rows, source, block_size)
        write_array(output, rows)
        return
    with replacing(output) as target:
        table = np.lib.format.open_memmap(
            target, mode="w+", dtype=np.float32, shape=shape
        )
        # A mapped file has no room on the disk yet: lacking, it would end the process.
        if hasattr(os, "posix_fallocate"):
            with target.open("rb+") as file:
                os.posix_fallocate(file.fileno(), 0, target.stat().st_size)
        _fill(table, source, block_size)
        table.flush()


def _fill(rows: NDArray[np.float32], source: RowSource, block_size: int) -> None:
    for block in source.blocks(block_size):
        rows[block.index.cpu().numpy()] = block.rows.cpu().numpy()


def _report(
    output: Path,
    source: RowSource,
    components: Whitening | None,
    seconds: dict[str, float],
    *,
    as_json: bool,
) -> None:
    summary: dict[str, object] = {
        "output": str(output),
        "n_samples": len(source),
        "n_features": source.n_features,
        "seconds": seconds,
    }
    if components is not None:
        summary["explained"] = float(components.explained_.sum())
    if as_json:
        print(json.dumps(summary))
        return
    print(f"{len(source)} rows of {source.n_features} features written to {output}")
    if components is not None:
        print(f"components hold {summary['explained']:.1%} of the total")
