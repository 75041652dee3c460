"""``selfexpress features``: turn images or rows into features, block by block."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selfexpress.cli.inputs import is_file, read_dataset, read_rows
from selfexpress.cli.options import Device, Json, Name, Quiet, count_or_auto
from selfexpress.cli.outputs import require_apart, require_writable
from selfexpress.cli.terminal import rows_bar
from selfexpress.errors import ConfigError, DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from selfexpress.rows.sources import RowSource


def _shape(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+(x\d+){1,2}", text):
        raise typer.BadParameter(
            f"it must look like 28x28 or 3x32x32, got {text!r}. Give the height and "
            "width, after the number of channels if several."
        )
    return tuple(int(side) for side in text.split("x"))


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
            parser=count_or_auto,
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
        Any,
        typer.Option(
            help="Shape of images stored as rows: 28x28, or 3x32x32.",
            parser=_shape,
            metavar="SHAPE",
        ),
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
    name: Name = None,
    block_size: Annotated[int, typer.Option(help="Rows handled at once.")] = 4096,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write the features of DATA, one row a sample, in single precision.

    Memory does not grow with the data for .npy files: rows are read, mapped and
    written in blocks, and computed twice where the components must be found first.

    Example: selfexpress features rows.npy -o white.npy --whiten auto --projection p

    Then: selfexpress features new.npy -o new-white.npy --projection p
    """
    from selfexpress.features import Whitening
    from selfexpress.files.arrays import FORMATS

    if paper:
        scattering, resize, project = True, resize or 32, project or 500
    _require_features(scattering, whiten, project, projection)
    is_new = whiten is not None or project is not None
    taken, kept = (None, projection) if is_new else (projection, None)
    of_scattering = {"resize": resize, "image-shape": image_shape}
    of_scattering |= {"scales": scales, "angles": angles}
    _require_used(
        ("--scattering", scattering, of_scattering),
        ("--whiten or --project", is_new, {"center": center or None}),
        ("a data set's name", not is_file(data), {"split": split}),
    )
    require_writable(output, suffixes=FORMATS)
    require_writable(kept)
    components = None if taken is None else Whitening.load(taken)
    require_apart(
        {"DATA": data, "--projection": taken},
        {"--output": output, "--projection": kept},
    )
    settings = {"J": scales, "L": angles, "image_shape": image_shape, "resize": resize}
    source = _opened(data, name, split, device, settings if scattering else None)
    facts: dict[str, Any] = {"output": str(output), "n_samples": len(source)}
    seconds: dict[str, float] = {}
    if is_new:
        n_components, levelled = (whiten, True) if project is None else (project, False)
        components = Whitening(
            n_components, center=center, whiten=levelled, block_size=block_size
        )
        with _timed("finding components", source, seconds, quiet) as counted:
            components.fit(counted)
        facts["explained"] = float(components.explained_.sum())
        if kept is not None:
            components.save(kept)
    if components is not None:
        source = components.stream(source)
    with _timed("writing features", source, seconds, quiet) as counted:
        _write(output, counted, block_size)
    facts |= {"n_features": source.n_features, "seconds": seconds}
    if as_json:
        print(json.dumps(facts))
        return
    print(f"{len(source)} rows of {source.n_features} features written to {output}")
    if "explained" in facts:
        print(f"components hold {facts['explained']:.1%} of the total")


def _require_features(
    scattering: bool, whiten: Any, project: int | None, projection: Path | None
) -> None:
    if not scattering and (whiten, project, projection) == (None, None, None):
        raise ConfigError(
            "At least one of --scattering, --whiten, --project, --projection and "
            "--paper must be given, got none. Say which features to compute."
        )
    if whiten is not None and project is not None:
        raise ConfigError(
            f"Only one of --whiten and --project may be given, got {whiten} and "
            f"{project}. --whiten levels the components, --project does not."
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


def _opened(
    data: str,
    name: str | None,
    split: str | None,
    device: str,
    settings: dict[str, Any] | None,
) -> RowSource:
    """Return rows, with the names of their columns, or the scattering of images."""
    import numpy as np

    from selfexpress.ops.devices import resolve_device
    from selfexpress.rows.opening import as_source
    from selfexpress.rows.sources import CheckedRows

    on = resolve_device(device)
    if settings is not None:
        return _scattered(_read_samples(data, name, split), on, settings)
    if is_file(data):
        rows = read_rows(data, name=name)
    else:
        rows = _read_samples(data, name, split)
    return CheckedRows(
        as_source(rows) if isinstance(rows, np.ndarray) else rows, device=on
    )


def _scattered(
    samples: NDArray[Any], device: Any, settings: dict[str, Any]
) -> RowSource:
    """Return the scattering of images, computed as they are walked."""
    import numpy as np
    import torch

    from selfexpress.features import Scattering2D
    from selfexpress.rows.sources import ArraySource, MappedSource, row_dtype

    given = {name: value for name, value in settings.items() if value is not None}
    transformer = Scattering2D(**given).fit(samples[:1])
    dtype = torch.uint8 if samples.dtype == np.uint8 else row_dtype(samples)
    flat = samples.reshape(len(samples), -1)
    source = ArraySource(flat, dtype=dtype, device=device)

    def transform(rows: Tensor) -> Tensor:
        images = rows.view(len(rows), *samples.shape[1:])
        return torch.as_tensor(transformer.transform(images))

    return MappedSource(source, transform, len(transformer.get_feature_names_out()))


@contextmanager
def _timed(
    stage: str, source: RowSource, seconds: dict[str, float], quiet: bool
) -> Iterator[RowSource]:
    """Yield the same rows; walking them moves a bar. Add the stage's seconds."""
    from selfexpress.rows.sources import MappedSource

    start = time.perf_counter()
    with rows_bar(quiet=quiet) as progress:
        task = progress.add_task(stage, total=len(source))

        def count(rows: Tensor) -> Tensor:
            progress.advance(task, len(rows))
            return rows

        yield MappedSource(source, count)
    seconds[stage] = time.perf_counter() - start


def _read_samples(data: str, name: str | None, split: str | None) -> NDArray[Any]:
    """Return images; a ``.npy`` file stays on disk."""
    from selfexpress.files.arrays import read_array

    if Path(data).is_dir():
        raise DataError(f"Images must lie in one file, got the folder {data}. Join it.")
    if is_file(data):
        return read_array(data, name=name, mmap=True)
    return read_dataset(data, split=split or "full").samples


def _write(output: Path, source: RowSource, block_size: int) -> None:
    """Write all rows; a ``.npy`` file is filled on disk, others go through memory."""
    import numpy as np

    from selfexpress.files.arrays import write_array
    from selfexpress.files.atomic import replacing

    def fill(rows: NDArray[np.float32]) -> None:
        for block in source.blocks(block_size):
            rows[block.index.cpu().numpy()] = block.rows.cpu().numpy()

    shape = (len(source), source.n_features)
    if output.suffix.lower() != ".npy":
        rows = np.empty(shape, np.float32)
        fill(rows)
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
        fill(table)
        table.flush()
