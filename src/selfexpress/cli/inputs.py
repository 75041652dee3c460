"""What a command reads: rows, data sets, and what a report shows of a problem."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfexpress.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from selfexpress.datasets.loading import Dataset
    from selfexpress.rows.sources import RowSource

# Files up to here are simply read.
_SMALL_BYTES = 256 * 2**20


def is_file(data: str) -> bool:
    """Tell files and folders from names of data sets."""
    from selfexpress.files.arrays import FORMATS

    return Path(data).exists() or Path(data).suffix.lower() in FORMATS


def read_rows(data: str, *, name: str | None = None) -> NDArray[Any] | RowSource:
    """Return the rows of a file, folder or data set, (N, D); images are flattened.

    A large file and a folder of shards stay on disk, where the format allows it.
    """
    import numpy as np

    from selfexpress.files.arrays import read_array
    from selfexpress.rows.opening import as_source, open_rows
    from selfexpress.rows.sources import ArraySource, names_of

    path = Path(data)
    if not is_file(data):
        return read_dataset(data).rows.astype(np.float32)
    if path.is_dir():
        return open_rows(path, name=name)
    is_large = path.is_file() and path.stat().st_size > _SMALL_BYTES
    if not is_large and path.suffix.lower() not in (".csv", ".parquet"):
        array = read_array(path, name=name)
        return array if array.ndim == 2 else array.reshape(len(array), -1)
    rows = open_rows(path, name=name)
    if is_large or isinstance(rows, ArraySource):
        return rows
    # Decoded once, and not whenever they are walked.
    blocks = [block.rows.numpy() for block in rows.blocks(8192)]
    return as_source(np.concatenate(blocks), names_of(rows))


def read_dataset(name: str, **options: Any) -> Dataset:
    """Return a data set that is a single clustering problem."""
    from selfexpress.datasets.loading import Dataset, available, load_dataset
    from selfexpress.files.arrays import FORMATS

    known = [spec.name for spec in available()]
    if name.partition("/")[0] not in known:
        raise DataError(
            f"DATA must be a file ending in {', '.join(FORMATS)}, a folder of such "
            f"files, or one of {', '.join(known)}, got {name!r}. Check the spelling."
        )
    dataset = load_dataset(name, **options)
    if not isinstance(dataset, Dataset):
        raise DataError(
            f"{name} holds {len(dataset)} problems that are clustered one by one. "
            f"Name one of them, such as {name}/{next(iter(dataset.sequences))}."
        )
    return dataset


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows to be clustered, and what is known of them.

    ``rows`` are an array or RowSource of shape (N, D), ``samples`` the N rows or images
    that a report shows, ``truth`` their classes.
    """

    rows: Any
    samples: Any
    truth: Any = None
    class_names: tuple[str, ...] | None = None


def read_problem(
    data: str, *, name: str | None, images: str | None, truth: Path | None
) -> Problem:
    """Read everything that a run will need, so that nothing fails after the fit.

    A data set's classes are taken as the truth, unless there is a file of it.
    """
    import numpy as np

    from selfexpress.files.arrays import read_array, read_labels

    dataset = None if is_file(data) else read_dataset(data)
    if dataset is None:
        rows = samples = read_rows(data, name=name)
    else:
        rows, samples = dataset.rows.astype(np.float32), dataset.samples
    if images is not None:
        dataset = None if is_file(images) else read_dataset(images)
        samples = read_array(images, mmap=True) if dataset is None else dataset.samples
        _require_as_many(len(samples), images, len(rows))
    if truth is not None:
        classes = read_labels(truth)
        _require_as_many(len(classes), str(truth), len(rows))
        return Problem(rows, samples, classes)
    if dataset is None:
        return Problem(rows, samples)
    return Problem(rows, samples, dataset.labels, dataset.class_names)


def _require_as_many(n_given: int, origin: str, n_rows: int) -> None:
    if n_given != n_rows:
        raise DataError(
            f"{origin} must hold the {n_rows} samples of DATA in the same order, got "
            f"{n_given}. Check that they belong together."
        )
