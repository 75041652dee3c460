"""Matrices that users give, checked by scikit-learn's rules, refused in fewer words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from selfexpress.errors import DataError, one_line
from selfexpress.files.tables import is_list, table_rows

# What to do, by a word of what scikit-learn says is wrong.
_ADVICE = {
    "NaN": "X must be finite: fill or drop what is missing.",
    "infinity": "X must be finite: drop or scale down such entries.",
    "expecting": "X must have the columns that fit saw, and no others.",
    "feature names": "X must have the columns that fit saw, in their order.",
    "2D array": "X must be a matrix, a row for each sample: Reshape your data.",
    "": "X must be a matrix of real numbers, a row for each sample.",
}
# In the names of types of pandas, Polars, NumPy and Arrow.
_TIMES = re.compile("date|time|duration|period", re.IGNORECASE)


def validated(estimator: BaseEstimator, X: Any, **options: Any) -> Any:
    """Return what :func:`sklearn.utils.validation.validate_data` makes of ``X``.

    Raises
    ------
    DataError
        If it refuses ``X``, or that has masked entries, holds dates or is no matrix.
    TypeError
        If ``X`` holds objects, or is sparse.
    """
    X = as_matrix(X)
    try:
        return validate_data(estimator, X, **options)
    except (ValueError, TypeError) as error:
        text = str(error)
        if isinstance(error, TypeError) and "sparse" in text.lower():
            raise
        # Several lines, and the array itself, are no help on a terminal; names are.
        shown = text if "feature names" in text else text.partition("\n")[0]
        found = one_line(shown, longest=240).rstrip(":. ")
        advice = next(words for key, words in _ADVICE.items() if key in found)
        kind = TypeError if isinstance(error, TypeError) else DataError
        raise kind(f"{found}. {advice}") from error


def as_matrix(X: Any) -> Any:
    """Return what holds the rows of ``X``; refuse masks, dates and what is no array."""
    _require_unmasked(X)
    # The table of a Hugging Face data set hands out columns where rows are asked for.
    if isinstance(getattr(X, "table", None), pa.Table):
        X = X.table
    if isinstance(X, pa.Table | pa.RecordBatch):
        kinds = X.schema.types
        if len(kinds) == 1 and is_list(kinds[0]):
            return table_rows(pa.table(X), Path("X"))
    else:
        kinds = getattr(X, "dtypes", getattr(X, "dtype", ()))
    every = set(map(str, kinds if isinstance(kinds, Iterable) else [kinds]))
    times = sorted(filter(_TIMES.search, every))
    if times:
        raise DataError(
            f"X must hold real numbers, got {times[0]}. Turn dates and durations into "
            "numbers, or drop their columns."
        )
    has_places = hasattr(X, "__getitem__") or hasattr(X, "shape")
    if hasattr(X, "__iter__") and not has_places:
        raise DataError(
            f"X must be a matrix, got a {type(X).__name__}, which gives rows only one "
            "after the other. Collect them in an array, or write them to files and use "
            "selfexpress.open_rows."
        )
    return X


def _require_unmasked(X: Any) -> None:
    """Refuse an array of which a part is masked, which a mask would not survive."""
    if isinstance(getattr(X, "_meta", None), np.ma.MaskedArray):
        X = X.compute()  # Dask gives its numbers away without their mask.
    parts = X if isinstance(X, list | tuple) else [X]
    n_masked = sum(np.ma.getmaskarray(p).sum() for p in parts if np.ma.is_masked(p))
    if n_masked:
        raise DataError(
            f"X must be without gaps, got {n_masked} masked entries. Fill or drop them."
        )
