"""Arrays, labels and coefficients, read and written by the suffix of their file.

Files are not trusted: sizes are checked before room is made for them, no pickle is
loaded, and whatever is wrong with a file is a :class:`~selfexpress.errors.DataError`
of one line. Writes appear whole or not at all.
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

from selfexpress.errors import DataError, SelfExpressError, SelfExpressWarning
from selfexpress.files.atomic import replacing
from selfexpress.files.formats import (
    Array,
    Entry,
    Format,
    check_kind,
    listing,
)
from selfexpress.files.matlab_files import MAT
from selfexpress.files.numpy_files import NPY, NPZ, map_npy, open_npz
from selfexpress.files.parquet_files import PARQUET
from selfexpress.files.safetensors_files import SAFETENSORS
from selfexpress.files.text_files import CSV

FORMATS: dict[str, Format] = {
    ".npy": NPY,
    ".npz": NPZ,
    ".csv": CSV,
    ".parquet": PARQUET,
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
        A ``.npy``, ``.npz``, ``.csv``, ``.parquet``, ``.mat`` or ``.safetensors`` file.
    name : str, optional
        Array of an ``.npz``, ``.mat`` or ``.safetensors`` file, or column of a
        ``.csv`` or ``.parquet`` file. Not needed for the only array, for one named
        ``X``, ``data``, ``features``, ``fea`` or ``images``, and for the only matrix.
        Without it a ``.parquet`` file gives its only column of lists, else all its
        columns.
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
        Real numbers. ``.csv`` and ``.parquet`` hold two dimensions only.

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
    """Read a sparse matrix, such as coefficients, that :func:`write_csr` wrote.

    Parameters
    ----------
    path : path
        An ``.npz`` file in SciPy's layout, in CSR form.

    Returns
    -------
    csr_array

    Raises
    ------
    DataError
        The file cannot be read, or its parts do not make a sparse matrix.
    """
    path = Path(path)
    if path.suffix.lower() != ".npz":
        raise DataError(
            f"A sparse matrix must lie in an .npz file, got {path}. Write it with "
            "scipy.sparse.save_npz, or with --coefficients of selfexpress fit."
        )
    with reading(path), open_npz(path) as container:
        needed = ("format", "shape", "data", "indices", "indptr")
        if not set(needed) <= set(container.entries):
            raise DataError(
                f"{path} must hold a sparse matrix written by scipy.sparse.save_npz, "
                f"but holds {listing(container.entries)}. Write it that way."
            )
        for part in needed:
            check_kind(container.entries[part], "biufSU", path)
        return _csr_from({part: container.read(part) for part in needed}, path)


def write_csr(path: str | os.PathLike[str], matrix: sparse.sparray) -> None:
    """Write a sparse matrix in SciPy's ``.npz`` layout; whole or not at all.

    Parameters
    ----------
    path : path
        Where to write, with suffix ``.npz``.
    matrix : sparse array or matrix
        Written in CSR form.

    Raises
    ------
    DataError
        The file cannot be written.
    """
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
            f"({_one_line(error)}). Write or fetch it again."
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
    form = parts["format"].tobytes().replace(b"\0", b"")
    shape = parts["shape"]
    data, indices, indptr = parts["data"], parts["indices"], parts["indptr"]
    is_sound = (
        form == b"csr"
        and shape.shape == (2,)
        and {shape.dtype.kind, indices.dtype.kind, indptr.dtype.kind} <= set("iu")
        and data.dtype.kind in "biuf"
        and data.ndim == indices.ndim == indptr.ndim == 1
        and len(data) == len(indices)
        and len(indptr) == int(shape[0]) + 1
        and indptr[0] == 0
        and indptr[-1] == len(data)
        and bool((indptr[1:] >= indptr[:-1]).all())
        and (not len(data) or 0 <= indices.min() <= indices.max() < shape[1])
    )
    if not is_sound:
        raise DataError(
            f"{path} must hold a sound sparse matrix in CSR form, but its parts do "
            "not fit together. Write it again with scipy.sparse.save_npz."
        )
    return sparse.csr_array(
        (_native(data), _native(indices), _native(indptr)),
        shape=(int(shape[0]), int(shape[1])),
    )


def _one_line(error: Exception) -> str:
    """Return an error's first line as printable text of bounded length."""
    text = str(error).strip().split("\n")[0][:160] or type(error).__name__
    return "".join(letter if letter.isprintable() else "?" for letter in text)
