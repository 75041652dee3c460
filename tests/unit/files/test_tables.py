"""Tables: what their columns, header lines and cells are taken for."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather
from refusals import refused

from selfexpress import open_rows
from selfexpress.errors import DataError, DegenerateWarning
from selfexpress.files.arrays import read_array, read_labels, write_array, write_labels

WRITERS = {".parquet": pq.write_table, ".feather": feather.write_feather}
WAVELENGTHS = "nm," + ",".join(str(400 + 0.5 * place) for place in range(8))
COUNTED = ",".join(map(str, range(12)))


@pytest.fixture(params=WRITERS)
def write(request, tmp_path):
    """Write columns to a table of either kind and return its path."""

    def write_table(table, **options):
        path = tmp_path / f"rows{request.param}"
        WRITERS[request.param](pa.table(table), str(path), **options)
        return path

    return write_table


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("\ufeffleft,right\r\n1, 2\r\n\r\n3,4e1\r\n", [[1, 2], [3, 40]]),
        ('1,"2"\n3,nan', [[1, 2], [3, np.nan]]),
        ("5", [[5]]),
        ("\n\n0,1,2\n0.5,1,2\n\n3,4,5\n", [[0.5, 1, 2], [3, 4, 5]]),
        ('\n\n"first\nname",b,c\n0.5,1,2\n\n3,4,5\n', [[0.5, 1, 2], [3, 4, 5]]),
        # Numbers beside words may name columns.
        *((f"{names},z\n1,2,3,4\n", [[1, 2, 3, 4]]) for names in ("id,0,1", "t,1e3,2e3",
          "a,1.0,2.0", "a,nan,c", "x,inf,y", "id,-2,-1")),
        (WAVELENGTHS + "\n" + ",".join("123456789"), [[*range(1, 10)]]),
        # 0, 1, 2 and so on are names above fractions, and above many whole numbers
        # unless counting goes on.
        ("0,1,2\n3,4,5\n", [[0, 1, 2], [3, 4, 5]]),
        (COUNTED + "\n" + ",".join("7" * 12), [[7] * 12]),
        (COUNTED + "\n" + ",".join(map(str, range(12, 24))),
         np.arange(24).reshape(2, 12)),
    ],
)  # fmt: skip
def test_text_is_read_as_rows(text, rows, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(text, encoding="utf-8", newline="")
    np.testing.assert_equal(read_array(path), np.array(rows, dtype=np.float64))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1,2\n3\n", r"line 2 has 1 and the first 2"),
        ("a,b\n1,2\n\n3,4,5\n", r"line 4 has 3 and the first 2"),
        ("1,2\n3,x\n", r"line 2, column 2 is 'x'"),
        ("a,b\n1,2\n3,none\n", r"line 3, column 2 is 'none'"),
        ("1,2\n,3\n", r"line 2, column 1 is ''"),
        ("1;2\n3;4\n", r"line 2, column 1 is '3;4'"),
        (",a\n0,1\n", r"column 1 has no name.*index=False"),
        (",\n0,1\n", r"column 1 has no name"),
        ("", r"got \(0, \d\)"),
        ("a,b\n", r"got \(0, \d\)"),
        ("1,,2\n1,0,0\n", "line 1, column 2"),
        *((f"{first}\n1,1,1\n", r"line 1, column 2 is .*or name all columns by words")
          for first in ("1.5,#N/A,2", "0.5,word,2", "1e3,-,2", "nan,NA,nan", "0,a,0")),
        ("word,0.5,0.4,0.3,0.2,0.1,0.3,0.4,0.5\n" + ",".join("1" * 9),
         "line 1, column 1 is .*or name all"),
    ],
)  # fmt: skip
def test_text_that_is_not_a_table_of_numbers_is_refused(text, words, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(text)
    refused(path, words)


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "bool"])
def test_rows_as_text_come_back_exactly(dtype, tmp_path, seed):
    rows = (100 * np.random.default_rng(seed).standard_normal((7, 5))).astype(dtype)
    write_array(tmp_path / "rows.csv", rows)
    actual = read_array(tmp_path / "rows.csv")
    assert actual.dtype == np.float64
    assert np.array_equal(actual.astype(dtype), rows)


def test_a_first_row_that_counts_is_written_as_a_row(tmp_path):
    rows = np.array([np.arange(9), [3, 1, 2, 0, 5, 4, 8, 7, 6], np.ones(9)])
    for array in (rows.astype(int), rows):
        write_array(tmp_path / "rows.csv", array)
        np.testing.assert_array_equal(read_array(tmp_path / "rows.csv"), rows)


def test_lines_longer_than_a_block_of_the_library(tmp_path):
    rows = np.random.default_rng(0).standard_normal((2, 150_000))
    write_array(tmp_path / "rows.csv", rows)
    assert np.array_equal(read_array(tmp_path / "rows.csv"), rows)


def test_columns_of_text_files_have_names(tmp_path):
    rows = pd.DataFrame([[0.5, 1.25], [3.0, 4.0]])
    path = tmp_path / "rows.csv"
    rows.to_csv(path, index=False)
    np.testing.assert_array_equal(read_array(path), rows)
    np.testing.assert_array_equal(read_array(path, name="1"), rows[[1]])
    assert open_rows(path).feature_names is None
    path.write_text("a,b,kind\n1,2,x\n")
    assert read_array(path, name="b").tolist() == [[2]]
    refused(path, r"'c', once, but holds 'a', 'b', 'kind'", name="c")
    path.write_text("a, b\n1,2\n")
    assert open_rows(path).feature_names == ("a", "b")


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("1\n0\n", [1, 0]),
        ("cluster\n1\n0\n", [1, 0]),
        ("a\nb\n", ["a", "b"]),
        ("label\nb\n", ["b"]),
        ("id,y\n7,a\n8,b\n", ["a", "b"]),
        (",y\n7,a\n8,b\n", ["a", "b"]),
        ("1.0\n-2.0\n", [1, -2]),
        ("label\na\nb \n a\nb\n", ["a", "b", "a", "b"]),
        # Labels can be "y" and "n".
        ("y\nn\ny\n", ["y", "n", "y"]),
        ("y\nno\nyes\n", ["no", "yes"]),
    ],
)
def test_text_is_read_as_labels(text, labels, tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text(text)
    assert read_labels(path).tolist() == labels


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0.5\n1\n", r"whole numbers or text as labels, got \[0\.5\]"),
        ("y,b\n1\n", "line 2 has 1 and the first 2"),
        ("", "one label a sample"),
        ("id,kind\n7,a\n", "'id', 'kind'"),
        ('label\n0\n""\n1\n', "of row 1, counted from 0, is empty"),
        ("id,label\n7,0\n8,\n9,1\n", "of row 1, counted from 0, is empty"),
        ("label\n0\n1\nNA\n1\n", "a label in every line, but some are 'NA'"),
        ("a\n" * 20_000 + "b" * 20_000, "when unpacked"),
    ],
    ids=lambda text: text[:12],
)
def test_text_that_holds_no_labels_is_refused(text, words, tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text(text)
    refused(path, words, read=read_labels)


def test_labels_are_chosen_by_name_and_not_blank(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("id,kind\n7,a\n8,b\n")
    assert read_labels(path, name="kind").tolist() == ["a", "b"]
    refused(path, "'other'", read=read_labels, name="other")
    with pytest.raises(DataError, match="must not be blank"):
        write_labels(path, ["cat", ""])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("animal\ncat\ndog\ncat\ndog\n", r"'animal'.*call it 'label'"),
        ("label\na\nb\nNA\nb\n", "are 'NA', which may stand for one that"),
    ],
)
def test_labels_that_may_be_something_else_are_warned_of(text, words, tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text(text)
    with pytest.warns(DegenerateWarning, match=words) as caught:
        read_labels(path)
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DegenerateWarning, match=words):
            read_labels(path)
        warnings.simplefilter("ignore")
        read_labels(path)
    for sound in ("label\ncat\ndog\ncat\ndog\n", "cat\ncat\ndog\ndog\n", "a\nb\n"):
        path.write_text(sound)
        read_labels(path)


def test_columns_become_features(write):
    table = {"a": np.array([1, 2], "i2"), "b": np.array([0.5, 1.5], "f4")}
    path = write(table | {"__index_level_0__": [10, 11]})
    actual = read_array(path)
    assert actual.dtype == np.float32
    assert actual.tolist() == [[1, 0.5], [2, 1.5]]
    assert read_array(path, name="b").tolist() == [[0.5], [1.5]]
    assert read_labels(path, name="a").tolist() == [1, 2]
    refused(path, "'c', once, but holds 'a', 'b'", name="c")
    refused(path, "Name the one", read=read_labels)
    assert open_rows(path).feature_names == ("a", "b")


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float32()), pa.large_list(pa.int16()), pa.list_(pa.uint8(), 2)]
)
@pytest.mark.parametrize("suffix", WRITERS)
def test_lists_become_rows_and_arrive_in_parts(kind, suffix, tmp_path):
    path = tmp_path / f"rows{suffix}"
    rows = pa.array([[1, 2], [3, 4], [5, 6]], type=kind)
    names = pa.array(["a", "b", "a"]).dictionary_encode()
    size = {".parquet": "row_group_size", ".feather": "chunksize"}[suffix]
    WRITERS[suffix](pa.table({"v": rows, "label": names}), str(path), **{size: 2})
    actual = read_array(path)
    assert open_rows(path).feature_names is None
    assert actual.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert actual.dtype == kind.value_type.to_pandas_dtype()
    assert read_labels(path).tolist() == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"v": [[1.0, 2.0], [3.0]]}, "row 1 has 1 values and the first 2"),
        ({"v": [[1.0], None]}, "1 of 2 are empty"),
        ({"v": [[1.0], [None]]}, "1 of 2 are empty"),
        ({"v": [[[1.0]]]}, "others: 'v'"),
        ({"a": [1.0, None]}, "1 of 2 are empty"),
        ({"a": [1.0], "name": ["x"]}, "others: 'name'"),
        ({"v": [["x"]]}, "others: 'v'"),
        ({"a": pa.array([], pa.float32())}, r"got \(0, 1\)"),
    ],
)
def test_columns_without_a_table_of_numbers_are_refused(table, words, write):
    refused(write(table), words)


def test_dates_are_no_labels(write):
    path = write({"label": pa.array([1, 2], pa.timestamp("s"))})
    refused(path, "numbers or text, got timestamp", read=read_labels)


def test_columns_beside_the_one_of_lists_are_warned_of(write):
    lists = pa.array([[1, 2], [3, 4]])
    path = write({"f0": [0.5, 1.5], "tokens": lists})
    with pytest.warns(DegenerateWarning, match="'tokens', and not from 'f0'"):
        assert read_array(path).tolist() == [[1, 2], [3, 4]]
    assert read_array(write({"id": [1, 2], "tokens": lists})).shape == (2, 2)
