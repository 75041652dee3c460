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

    from selfexpress.features import Whitening
    from selfexpress.rows.sources import RowSource


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
    from selfexpress.ops.devices import resolve_device
    from selfexpress.rows.sources import CheckedRows

    if paper:
        scattering, resize, project = True, resize or 32, project or 500
    components = _new_components(whiten, project, center=center, block_size=block_size)
    is_new = components is not None
    taken, kept = (None, projection) if is_new else (projection, None)
    if taken is not None:
        components = Whitening.load(taken)
    _require_some(scattering, components)
    of_scattering = {"resize": resize, "image-shape": image_shape}
    of_scattering |= {"scales": scales, "angles": angles}
    _require_used(
        ("--scattering", scattering, of_scattering),
        ("--whiten or --project", is_new, {"center": center or None}),
        ("a data set's name", not is_file(data), {"split": split}),
    )
    require_writable(output, suffixes=FORMATS)
    require_writable(kept)
    require_apart(
        {"DATA": data, "--projection": taken},
        {"--output": output, "--projection": kept},
    )
    on = resolve_device(device)
    if scattering:
        shape = {"image_shape": _parse_shape(image_shape), "resize": resize}
        samples = _read_samples(data, name=name, split=split)
        source = _scattered(samples, on, J=scales, L=angles, **shape)
    else:
        source = CheckedRows(_read_rows(data, name=name, split=split), device=on)
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
    explained = {}
    if is_new and components is not None:
        explained["explained"] = float(components.explained_.sum())
    _report(output, source, stages.seconds, explained, as_json=as_json)


def _require_some(*features: object) -> None:
    if not any(features):
        raise ConfigError(
            "At least one of --scattering, --whiten, --project, --projection and "
            "--paper must be given, got none. Say which features to compute."
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


def _scattered(samples: NDArray[Any], device: Any, **settings: Any) -> RowSource:
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


class _Stages:
    """Progress bars on stderr and the seconds of each stage."""

    def __init__(self, *, quiet: bool) -> None:
        self.seconds: dict[str, float] = {}
        self._quiet = quiet

    @contextmanager
    def watched(self, name: str, source: RowSource) -> Iterator[RowSource]:
        """Yield the same rows; walking them moves the bar."""
        from selfexpress.rows.sources import MappedSource

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
    from selfexpress.features import Whitening

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


def _read_rows(data: str, *, name: str | None, split: str | None) -> RowSource:
    """Return rows of a file, folder or data set, with the names of their columns."""
    import numpy as np

    from selfexpress.rows.opening import as_source

    if is_file(data):
        rows = read_rows(data, name=name)
    else:
        rows = _read_samples(data, name=name, split=split)
    return as_source(rows) if isinstance(rows, np.ndarray) else rows


def _read_samples(data: str, *, name: str | None, split: str | None) -> NDArray[Any]:
    """Return images; a ``.npy`` file stays on disk."""
    from selfexpress.files.arrays import read_array

    if Path(data).is_dir():
        raise DataError(f"Images must lie in one file, got the folder {data}. Join it.")
    if is_file(data):
        return read_array(data, name=name, mmap=True)
    return read_dataset(data, split=split or "full").samples


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


def _report(
    output: Path,
    source: RowSource,
    seconds: dict[str, float],
    explained: dict[str, float],
    *,
    as_json: bool,
) -> None:
    n_samples, n_features = len(source), source.n_features
    if as_json:
        counts = {"n_samples": n_samples, "n_features": n_features}
        facts = {"output": str(output), **counts, "seconds": seconds, **explained}
        print(json.dumps(facts))
        return
    print(f"{n_samples} rows of {n_features} features written to {output}")
    for share in explained.values():
        print(f"components hold {share:.1%} of the total")
