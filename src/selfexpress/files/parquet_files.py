"""Rows and labels in ``.parquet`` files: columns of numbers, or one of lists."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from selfexpress.errors import DataError, DegenerateWarning, one_line
from selfexpress.files.formats import (
    LABEL_NAMES,
    Array,
    Format,
    check_unpacked_size,
    listing,
)
from selfexpress.files.parquet_pages import claimed_bytes

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

# Where pandas keeps a row index without a name: never a feature.
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
# Of a column, and of many of them together.
_BUFFER_BYTES = 2**20
_BUFFERS_BYTES = 2**26


def read_rows(path: Path, name: str | None) -> Array:
    """Return the only list column, else all columns, which must be numeric."""
    with open_parquet(path) as file:
        names = row_columns(file.schema_arrow, name, path)
        return table_rows(_read_columns(file, names, path), path)


def row_columns(schema: pa.Schema, name: str | None, path: Path) -> list[str]:
    """Return the names of the columns that hold the rows."""
    names = _chosen_columns(schema, name, path)
    kinds = [schema.field(key).type for key in names]
    odd = [
        key
        for key, kind in zip(names, kinds, strict=True)
        if not (_is_number(kind) or (len(names) == 1 and _is_list(kind)))
    ]
    if odd:
        raise DataError(
            f"{path} must hold columns of numbers, or one column of lists of "
            f"numbers, but holds others: {listing(odd)}. Drop them, or name the "
            "one to read."
        )
    return names


def is_list_column(schema: pa.Schema, names: Sequence[str]) -> bool:
    """Tell whether rows are the lists of one column."""
    return _is_list(schema.field(names[0]).type)


def table_rows(table: pa.Table, path: Path) -> Array:
    """Return the rows of a table whose columns :func:`row_columns` chose."""
    if is_list_column(table.schema, table.column_names):
        return _list_rows(table.column(0), path)
    return np.column_stack([_values(column, path) for column in table.columns])


def read_labels(path: Path, name: str | None) -> Array:
    """Return the only column, or the named or usual one: numbers or text."""
    with open_parquet(path) as file:
        schema = file.schema_arrow
        chosen = _label_column(schema, name, path)
        kind = schema.field(chosen).type
        if _is_number(kind):
            return _values(_read_columns(file, [chosen], path).column(0), path)
    # As a dictionary, a long text that is repeated takes room once.
    with open_parquet(path, dictionaries=[chosen]) as file:
        column = _read_columns(file, [chosen], path).column(0)
        return _dictionary_values(column, path)


def write_rows(path: Path, array: Array) -> None:
    """Write one column ``features`` of fixed-size lists."""
    import pyarrow as pa

    if array.ndim != 2:
        raise DataError(
            f"A .parquet file holds rows of numbers, got an array of {array.ndim} "
            "dimensions. Flatten each sample, or write .npy."
        )
    values = pa.array(np.ascontiguousarray(array).reshape(-1))
    rows = pa.FixedSizeListArray.from_arrays(values, array.shape[1])
    _write(path, pa.table({"features": rows}))


def write_labels(path: Path, labels: Array) -> None:
    """Write one column ``label``."""
    import pyarrow as pa

    _write(path, pa.table({"label": labels}))


PARQUET = Format(read_rows, read_labels, write_rows, write_labels)


def _write(path: Path, table: pa.Table) -> None:
    import pyarrow.parquet as pq

    pq.write_table(table, path, write_page_checksum=True)


def open_parquet(
    path: Path, *, dictionaries: Sequence[str] = (), n_columns: int = 1
) -> pq.ParquetFile:
    """Open a file without reading more than its footer.

    Parameters
    ----------
    path : Path
    dictionaries : sequence of str
        Columns to read as words that are stored once and referred to.
    n_columns : int
        Columns that will be read side by side.
    """
    import pyarrow.parquet as pq

    # No list in the footer can have more members than the file has bytes.
    try:
        file_size = path.stat().st_size
    except OSError as error:
        raise DataError(
            f"{path} must be there while its rows are used, but cannot be opened "
            f"({one_line(error)}). Put it back."
        ) from error
    return pq.ParquetFile(
        path,
        read_dictionary=list(dictionaries),
        thrift_string_size_limit=max(1, file_size),
        thrift_container_size_limit=max(1, min(file_size, 1_000_000)),
        page_checksum_verification=True,
        # Pages one by one, and let go again: a row group may be larger than memory.
        buffer_size=min(_BUFFER_BYTES, _BUFFERS_BYTES // n_columns),
        pre_buffer=False,
    )


def _chosen_columns(schema: pa.Schema, name: str | None, path: Path) -> list[str]:
    if name is not None:
        return [_named(schema, name, path)]
    lists = [field.name for field in schema if _is_list(field.type)]
    if len(lists) == 1:
        _warn_of_left_out(schema, lists[0], path)
        return lists
    return _columns(schema, path)


def _warn_of_left_out(schema: pa.Schema, chosen: str, path: Path) -> None:
    """Warn if columns of fractions stand beside the only one of lists."""
    import pyarrow as pa

    others = [field.name for field in schema if pa.types.is_floating(field.type)]
    if others:
        warnings.warn(
            f"Rows of {path} are taken from its only column of lists, {chosen!r}, and "
            f"not from {listing(others)}. If those are the features, leave the lists "
            "out.",
            DegenerateWarning,
            stacklevel=3,
        )


def _label_column(schema: pa.Schema, name: str | None, path: Path) -> str:
    names = _columns(schema, path)
    usual = [key for key in LABEL_NAMES if key in names]
    if name is not None:
        return _named(schema, name, path)
    if usual or len(names) == 1:
        return usual[0] if usual else names[0]
    raise DataError(
        f"{path} must hold one column of labels, or one under a usual name "
        f"({', '.join(LABEL_NAMES)}), but holds {listing(names)}. Name the one to read."
    )


def _columns(schema: pa.Schema, path: Path) -> list[str]:
    index = _index_names(schema)
    names = [
        key
        for key in schema.names
        if key not in index and not _PANDAS_INDEX.fullmatch(key)
    ]
    if not names or len(set(names)) < len(names):
        raise DataError(
            f"{path} must hold columns, each with its own name, but holds "
            f"{listing(names)}. Rename them."
        )
    return names


def _index_names(schema: pa.Schema) -> set[str]:
    """Return the columns that are the row index of a pandas DataFrame."""
    described = schema.pandas_metadata or {}
    # A range is described by a dict, and has no column.
    return {key for key in described.get("index_columns", []) if isinstance(key, str)}


def _named(schema: pa.Schema, name: str, path: Path) -> str:
    if schema.names.count(name) != 1:
        raise DataError(
            f"{path} must hold the column that was asked for, {name!r}, once, but "
            f"holds {listing(schema.names)}. Name one of these."
        )
    return name


def _read_columns(file: pq.ParquetFile, names: list[str], path: Path) -> pa.Table:
    """Read some columns after their size was found sensible."""
    check_unpacked_size(claimed_bytes(path, names), path)
    table = file.read(columns=names)
    check_table(table, names, path)
    return table


def check_table(table: pa.Table, names: list[str], path: Path) -> None:
    """Refuse a table with damaged columns, or with others than were asked for."""
    table.validate(full=True)
    if table.column_names != names:
        raise DataError(
            f"{path} must name its columns alike in all its parts, but does not. "
            "The file is damaged: write or fetch it again."
        )


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow.types as types

    return bool(
        types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    import pyarrow.types as types

    is_list = (
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
    )
    return bool(is_list and _is_number(kind.value_type))


def _list_rows(column: pa.ChunkedArray, path: Path) -> Array:
    """Return lists of equal length as rows."""
    import pyarrow.compute as pc

    _check_no_nulls(column, path)
    if not len(column):
        return np.empty((0, 0))
    lengths = pc.list_value_length(column).to_numpy()
    width = int(lengths[0])
    if (lengths != width).any():
        position = int(np.flatnonzero(lengths != width)[0])
        raise DataError(
            f"{path} must hold lists of equal length, but row {position} has "
            f"{lengths[position]} values and the first {width}. Complete or remove it."
        )
    values = _values(pc.list_flatten(column), path)
    return values.reshape(len(column), width)


def _dictionary_values(column: pa.ChunkedArray, path: Path) -> Array:
    """Return text, or numbers, that are stored once and referred to."""
    import pyarrow as pa

    _check_no_nulls(column, path)
    if not pa.types.is_dictionary(column.type):
        raise DataError(
            f"{path} must hold labels that are numbers or text, got {column.type}. "
            "Convert the column."
        )
    parts = []
    for piece in column.chunks:
        words = piece.dictionary.to_pylist()
        if all(isinstance(word, str) for word in words):
            longest = max(map(len, words), default=0)
            check_unpacked_size(4 * longest * max(len(words), len(piece)), path)
        parts.append(np.array(words)[piece.indices.to_numpy()])
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _values(column: pa.ChunkedArray, path: Path) -> Array:
    _check_no_nulls(column, path)
    values: Array = column.to_numpy()
    return values


def _check_no_nulls(column: pa.ChunkedArray, path: Path) -> None:
    if column.null_count:
        raise DataError(
            f"{path} must have a value in every cell, but {column.null_count} of "
            f"{len(column)} are empty. Fill them or drop their rows."
        )
