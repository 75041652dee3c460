"""Matrices that users give, checked by scikit-learn's rules, refused in fewer words."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from selfexpress.errors import DataError, one_line

# What to do, by a word of what scikit-learn says is wrong.
_ADVICE = {
    "NaN": "X must be finite: fill or drop what is missing.",
    "infinity": "X must be finite: drop or scale down such entries.",
    "expecting": "X must have the columns that fit saw, and no others.",
    "feature names": "X must have the columns that fit saw, in their order.",
    "2D array": "X must be a matrix, a row for each sample: Reshape your data.",
    "": "X must be a matrix of real numbers, a row for each sample.",
}


def validated(estimator: BaseEstimator, X: Any, **options: Any) -> Any:
    """Return what :func:`sklearn.utils.validation.validate_data` makes of ``X``.

    Raises
    ------
    DataError
        If it refuses ``X``, or a part of that is masked.
    """
    require_unmasked(X)
    try:
        return validate_data(estimator, X, **options)
    except ValueError as error:
        # Several lines, and the array itself, are no help on a terminal; names are.
        text = str(error)
        shown = text if "feature names" in text else text.partition("\n")[0]
        found = one_line(shown, longest=240).rstrip(":. ")
        advice = next(words for key, words in _ADVICE.items() if key in found)
        raise DataError(f"{found}. {advice}") from error


def require_unmasked(X: Any) -> None:
    """Refuse an array of which a part is masked, which a mask would not survive."""
    if np.ma.is_masked(X):
        n_masked = np.ma.getmaskarray(X).sum()
        raise DataError(
            f"X must be without gaps, got {n_masked} masked entries. Fill or drop them."
        )
