"""What may stand for a matrix, and what is refused in one sentence."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from selfexpress import EnSC
from selfexpress.errors import DataError
from selfexpress.features import Scattering2D, Whitening

ROWS = np.random.default_rng(0).normal(size=(12, 4))
TABLE = pa.table({f"c{number}": column for number, column in enumerate(ROWS.T)})
MASKED = np.ma.masked_array(ROWS, mask=ROWS > 1)


class HuggingFaceTable:
    """As ``datasets.Dataset.data``: as long as there are rows, but columns by place."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, place):
        return self.table[place]


class DaskArray:
    """As ``dask.array.Array``: NumPy sees its numbers without their mask."""

    def __init__(self, array) -> None:
        self._array = array
        self._meta = array[:0, :0]
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim

    def __len__(self) -> int:
        return len(self._array)

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self._array, dtype=dtype)

    def compute(self):
        return self._array


def refused(X, words, error=DataError):
    ensc = EnSC(2, device="cpu", random_state=0)
    for estimator in (ensc, Whitening(2), Scattering2D(1, image_shape=(2, 2))):
        with pytest.raises(error, match=words) as found:
            estimator.fit(X)
        assert len(str(found.value).splitlines()) == 1


@pytest.mark.parametrize(
    "given",
    [
        TABLE,
        TABLE.to_batches()[0],
        HuggingFaceTable(TABLE),
        DaskArray(ROWS),
        DaskArray(np.ma.masked_array(ROWS)),
        pa.table({"v": pa.FixedSizeListArray.from_arrays(ROWS.ravel(), 4)}),
        HuggingFaceTable(pa.table({"v": ROWS.tolist()})),
        list(ROWS),
    ],
    ids=lambda given: type(given).__name__,
)
def test_tables_and_arrays_are_read_row_by_row(given):
    expected = Whitening(2).fit(ROWS)
    whitening = Whitening(2).fit(given)
    np.testing.assert_array_equal(whitening.components_, expected.components_)
    np.testing.assert_array_equal(whitening.transform(given), expected.transform(ROWS))


def test_columns_of_a_wrapped_table_keep_their_names():
    fitted = Whitening(2).fit(HuggingFaceTable(TABLE))
    assert fitted.feature_names_in_.tolist() == ["c0", "c1", "c2", "c3"]
    with pytest.raises(DataError, match="columns that fit saw, in their order"):
        fitted.transform(HuggingFaceTable(TABLE.select(["c1", "c0", "c2", "c3"])))


@pytest.mark.parametrize("given", [MASKED, DaskArray(MASKED), list(MASKED)])
def test_masks_are_refused(given):
    refused(given, f"got {MASKED.mask.sum()} masked entries. Fill or drop them")


@pytest.mark.parametrize(
    "given",
    [
        torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(4, 4))),
        (row for row in ROWS),
        map(list, ROWS),
        {1.0, 2.0},
    ],
    ids=lambda given: type(given).__name__,
)
def test_what_gives_rows_one_by_one_is_refused(given):
    refused(given, f"got a {type(given).__name__}, which .* selfexpress.open_rows")


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (ROWS.astype("datetime64[s]"), "datetime64"),
        (ROWS.astype("timedelta64[s]"), "timedelta64"),
        (pd.DataFrame({"a": ROWS[:, 0], "when": pd.date_range("2020", periods=12)}),
         "datetime64"),
        (pd.DataFrame({"when": pd.date_range("2020", periods=12, tz="UTC")}), "UTC"),
        (pa.table({"a": ROWS[:, 0], "when": pa.array(range(12), pa.date32())}),
         "date32"),
    ],
)  # fmt: skip
def test_dates_are_refused(given, kind):
    refused(given, f"real numbers, got .*{kind}.*drop their columns")


def test_objects_are_refused_by_type():
    refused([{"a": 1.0}] * 12, "not 'dict'. X must be a matrix of real", TypeError)
