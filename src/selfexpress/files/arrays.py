"""Arrays, labels and coefficients, read and written by the suffix of their file.

Whatever is wrong with a file is a :class:`~selfexpress.errors.DataError` of one line.
Writes appear whole or not at all.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from selfexpress.errors import DataError, SelfExpressError, SelfExpressWarning, one_line
from selfexpress.files.atomic import replacing
from selfexpress.files.named_arrays import (
    MAT,
    NPY,
    NPZ,
    SAFETENSORS,
    Array,
    Entry,
    Format,
    check_kind,
    listing,
    map_npy,
    open_npz,
)
from selfexpress.files.tables import CSV, FEATHER, PARQUET

FORMATS: dict[str, Format] = {
    ".npy": NPY,
    ".npz": NPZ,
    ".csv": CSV,
    ".parquet": PARQUET,
    ".feather": FEATHER,
    ".mat": MAT,
    ".safetensors": SAFETENSORS,
}


def read_array(
    path: str | os.PathLike[str], *, name: str | None = None, mmap: bool = False
) -> Array:
    """Read rows, or images, from a file.

    Parameters
    ----------
    path : path
        A ``.npy``, ``.npz``, ``.csv``, ``.parquet``, ``.feather``, ``.mat`` or
        ``.safetensors`` file.
    name : str, optional
        Array of an ``.npz``, ``.mat`` or ``.safetensors`` file, or column of a
        ``.csv``, ``.parquet`` or ``.feather`` file. Not needed for the only array, for
        one named ``X``, ``data``, ``features``, ``fea`` or ``images``, and for the only
        matrix. Without it tables give their only column of lists, else all columns.
    mmap : bool
        Leave a ``.npy`` file on disk and return a read-only ``np.memmap``. Other
        suffixes, and foreign byte orders, are read whole.

    Returns
    -------
    ndarray of shape (n_samples, n_features) or (n_samples, ...)
        In the stored type; text gives float64.

    Raises
    ------
    DataError
        The file cannot be read, or holds no such array.
    """
    path = Path(path)
    form = _format_of(path)
    with reading(path):
        is_mapped = mmap and form is NPY
        array = map_npy(path) if is_mapped else form.read_rows(path, name)
        _check_rows(array, str(path))
        return _native(array)


def write_array(path: str | os.PathLike[str], array: ArrayLike) -> None:
    """Write rows, or images, to a file; it appears whole or not at all.

    Parameters
    ----------
    path : path
        Where to write; the suffix says how, as in :func:`read_array`. An existing
        file is replaced.
    array : array-like of shape (n_samples, n_features) or (n_samples, ...)
        Real numbers. ``.csv``, ``.parquet`` and ``.feather`` hold two dimensions only.

    Raises
    ------
    DataError
        The array is not of numbers, or the file cannot be written.
    """
    path = Path(path)
    form = _format_of(path)
    values = np.asarray(array)
    _check_rows(values, "The array to be written")
    with replacing(path) as target:
        form.write_rows(target, _native(values))


def read_labels(path: str | os.PathLike[str], *, name: str | None = None) -> Array:
    """Read one label a sample from a file.

    Parameters
    ----------
    path : path
        A file of any suffix of :func:`read_array`.
    name : str, optional
        Array or column that holds the labels. Not needed for the only one, nor for
        one named ``labels``, ``label``, ``y``, ``gnd``, ``truth`` or ``target``.

    Returns
    -------
    ndarray of shape (n_samples,)
        Integers, booleans or text. Floats that are whole numbers become int64.

    Raises
    ------
    DataError
        The file cannot be read, or does not hold labels.
    """
    path = Path(path)
    form = _format_of(path)
    with reading(path):
        return _as_labels(form.read_labels(path, name), str(path))


def write_labels(path: str | os.PathLike[str], labels: ArrayLike) -> None:
    """Write one label a sample to a file; it appears whole or not at all.

    Parameters
    ----------
    path : path
        Where to write, by suffix. ``.mat`` and ``.safetensors`` hold numbers only.
    labels : array-like of shape (n_samples,)
        Whole numbers, booleans or text.

    Raises
    ------
    DataError
        These are no labels, or the file cannot be written.
    """
    path = Path(path)
    form = _format_of(path)
    values = _native(_as_labels(np.asarray(labels), "The array to be written"))
    with replacing(path) as target:
        form.write_labels(target, values)


def read_csr(path: str | os.PathLike[str]) -> sparse.csr_array:
    """Read a sparse matrix from an ``.npz`` file in SciPy's layout, in CSR form.

    A file that cannot be read, or whose parts do not make a sparse matrix, is a
    DataError.
    """
    path = Path(path)
    if path.suffix.lower() != ".npz":
        raise DataError(
            f"A sparse matrix must lie in an .npz file, got {path}. Write it with "
            "scipy.sparse.save_npz, or with --coefficients of selfexpress fit."
        )
    with reading(path), open_npz(path) as arrays:
        needed = ("format", "shape", "data", "indices", "indptr")
        if not set(needed) <= set(arrays.entries):
            raise DataError(
                f"{path} must hold a sparse matrix written by scipy.sparse.save_npz, "
                f"but holds {listing(arrays.entries)}. Write it that way."
            )
        for part in needed:
            check_kind(arrays.entries[part], "biufSU", path)
        return _csr_from({part: arrays.read(part) for part in needed}, path)


def write_csr(path: str | os.PathLike[str], matrix: sparse.sparray) -> None:
    """Write a sparse matrix in SciPy's ``.npz`` layout, in CSR form; whole or not."""
    path = Path(path)
    if path.suffix.lower() != ".npz":
        raise DataError(
            f"A sparse matrix must be written to an .npz file, got {path}. "
            "Change the suffix."
        )
    with replacing(path) as target:
        sparse.save_npz(target, sparse.csr_array(matrix), compressed=False)


def _format_of(path: Path) -> Format:
    form = FORMATS.get(path.suffix.lower())
    if form is None:
        raise DataError(
            f"The suffix of {path} must be one of {', '.join(FORMATS)}, got "
            f"{path.suffix!r}. Rename or convert the file."
        )
    return form


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong while a file is read into one clear line."""
    if not path.is_file():
        given = "is not a regular file" if path.exists() else "does not exist"
        raise DataError(f"{path} must be a file, but {given}. Check the path.")
    try:
        with _only_our_warnings():
            yield
    except (SelfExpressError, SelfExpressWarning):
        raise
    except MemoryError as error:
        raise DataError(
            f"{path} must fit in memory, but does not. Store it as .npy, which can "
            "be read in parts."
        ) from error
    # Damage shows as any exception at all inside the parsers called here.
    except Exception as error:
        raise DataError(
            f"{path} must be a whole {path.suffix} file, but cannot be read "
            f"({one_line(error) or type(error).__name__}). Write or fetch it again."
        ) from error


@contextmanager
def _only_our_warnings() -> Iterator[None]:
    """Drop the warnings of parsers, and give ours when the caller's rules are back."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        if issubclass(warning.category, SelfExpressWarning):
            # Who asked for the file: past contextlib and the reader.
            warnings.warn(warning.message, stacklevel=6)


def _check_rows(array: Array, origin: str) -> None:
    check_kind(Entry(array.shape, array.dtype), "biuf", origin)
    if array.ndim < 2 or array.size == 0:
        raise DataError(
            f"{origin} must have shape (n_samples, n_features), both at least 1, got "
            f"{array.shape}. Reshape it, or choose another array."
        )


def _as_labels(array: Array, origin: str) -> Array:
    """Return labels as one dimension of integers, booleans or text."""
    if array.ndim == 0 or array.size == 0 or max(array.shape) != array.size:
        raise DataError(
            f"{origin} must hold one label a sample, got shape {array.shape}. Choose "
            "another array."
        )
    labels = array.reshape(-1)
    if labels.dtype.kind == "S":
        labels = np.char.decode(labels, "utf-8")
    elif labels.dtype.kind == "f":
        # NaN and infinity fail one of the two comparisons.
        whole = (labels == np.round(labels)) & (np.abs(labels) < 2.0**53)
        if not whole.all():
            raise DataError(
                f"{origin} must hold whole numbers or text as labels, got "
                f"{labels[~whole][:1].tolist()}. Choose another array."
            )
        labels = labels.astype(np.int64)
    check_kind(Entry(labels.shape, labels.dtype), "biuU", origin)
    return _native(labels)


def _native(array: Array) -> Array:
    """Return the array in this machine's byte order, the only one torch takes."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _csr_from(parts: dict[str, Array], path: Path) -> sparse.csr_array:
    data, indices, indptr = parts["data"], parts["indices"], parts["indptr"]
    try:
        if parts["format"].tobytes().replace(b"\0", b"") != b"csr":
            raise ValueError("it is in another form than CSR")
        kinds = {indices.dtype.kind, indptr.dtype.kind}
        if data.dtype.kind in "SU" or not kinds <= {"i", "u"}:
            raise ValueError("its entries are not numbers at whole places")
        values = (_native(data), _native(indices), _native(indptr))
        matrix = sparse.csr_array(values, shape=tuple(parts["shape"].tolist()))
        matrix.check_format(full_check=True)
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(
            f"{path} must hold a sound sparse matrix in CSR form, but its parts do "
            f"not fit together ({one_line(error)}). Write it again with "
            "scipy.sparse.save_npz."
        ) from error
    return matrix
