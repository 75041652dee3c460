"""Rows and labels in ``.csv``, ``.parquet`` and ``.feather`` files, read by pyarrow."""

from __future__ import annotations

import csv
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.types as types
from pyarrow import feather
from pyarrow import parquet as pq

from selfexpress.errors import DataError, DegenerateWarning, one_line
from selfexpress.files.named_arrays import (
    LABEL_NAMES,
    Array,
    Format,
    check_unpacked_size,
    listing,
)

# Where pandas keeps a row index without a name: never a feature.
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
# Of a column, and of many of them together.
_BUFFER_BYTES = 2**20
_BUFFERS_BYTES = 2**26
# So many numbers do not count by chance.
_MANY_COLUMNS = 8
# What stands for a value that is missing, or could not be computed; "nan" is a number.
_GAPS = {"", "na", "n/a", "<na>", "#na", "#n/a", "#n/a n/a", "nil", "null", "none"}
_GAPS |= {"?", "-", "--", ".", "missing"}
_GAPS |= {"#value!", "#div/0!", "#num!", "#ref!", "#name?"}


# --- Columns of any table


def row_columns(schema: pa.Schema, name: str | None, path: Path) -> list[str]:
    """Return the names of the columns that hold the rows."""
    names = _chosen_columns(schema, name, path)
    kinds = {key: schema.field(key).type for key in names}
    odd = [key for key, kind in kinds.items() if not _is_number(kind)]
    if odd and not (len(names) == 1 and is_list(kinds[names[0]])):
        raise DataError(
            f"{path} must hold columns of numbers, or one column of lists of "
            f"numbers, but holds others: {listing(odd)}. Drop them, or name the "
            "one to read."
        )
    return names


def table_rows(table: pa.Table, path: Path) -> Array:
    """Return the rows of a table whose columns :func:`row_columns` chose."""
    if is_list(table.schema.field(0).type):
        return _list_rows(table.column(0), path)
    return np.column_stack([_values(column, path) for column in table.columns])


def is_list(kind: pa.DataType) -> bool:
    """Return whether values are lists of numbers."""
    of_lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    return any(test(kind) for test in of_lists) and _is_number(kind.value_type)


def _is_number(kind: pa.DataType) -> bool:
    of_numbers = (types.is_integer, types.is_floating, types.is_boolean)
    return any(test(kind) for test in of_numbers)


def _chosen_columns(schema: pa.Schema, name: str | None, path: Path) -> list[str]:
    if name is not None:
        return [_named(schema.names, name, path)]
    lists = [field.name for field in schema if is_list(field.type)]
    if len(lists) != 1:
        return _columns(schema, path)
    others = [field.name for field in schema if types.is_floating(field.type)]
    if others:
        warnings.warn(
            f"Rows of {path} are taken from its only column of lists, {lists[0]!r}, "
            f"and not from {listing(others)}. If those are the features, leave the "
            "lists out.",
            DegenerateWarning,
            stacklevel=3,
        )
    return lists


def _columns(schema: pa.Schema, path: Path) -> list[str]:
    # A range as index is described by a dict, and has no column.
    described = (schema.pandas_metadata or {}).get("index_columns", [])
    names = [
        key
        for key in schema.names
        if key not in described and not _PANDAS_INDEX.fullmatch(key)
    ]
    if not names or len(set(names)) < len(names):
        raise DataError(
            f"{path} must hold columns, each with its own name, but holds "
            f"{listing(names)}. Rename them."
        )
    return names


def _named(names: Sequence[str], name: str, path: Path) -> str:
    if [*names].count(name) != 1:
        raise DataError(
            f"{path} must hold the column that was asked for, {name!r}, once, but "
            f"holds {listing(names)}. Name one of these."
        )
    return name


def _label_column(names: Sequence[str], path: Path) -> str:
    """Return the only column, or the first under a usual name."""
    usual = [key for key in LABEL_NAMES if key in names]
    if usual or len(names) == 1:
        return usual[0] if usual else names[0]
    raise DataError(
        f"{path} must hold one column of labels, or one under a usual name "
        f"({', '.join(LABEL_NAMES)}), but holds {listing(names)}. Name the one to read."
    )


def _list_rows(column: pa.ChunkedArray, path: Path) -> Array:
    """Return lists of equal length as rows."""
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
    return _values(pc.list_flatten(column), path).reshape(len(column), width)


def _values(column: pa.ChunkedArray, path: Path) -> Array:
    _check_no_nulls(column, path)
    values: Array = column.to_numpy()
    return values


def _words(column: pa.ChunkedArray, path: Path) -> Array:
    """Return text, or what a dictionary holds."""
    kind = column.type
    is_text = types.is_string(kind) or types.is_large_string(kind)
    if not (is_text or types.is_dictionary(kind)):
        raise DataError(
            f"{path} must hold labels that are numbers or text, got {kind}. Convert "
            "the column."
        )
    _check_no_nulls(column, path)
    encoded = column.dictionary_encode() if is_text else column.unify_dictionaries()
    pieces = encoded.combine_chunks()
    words = pieces.dictionary.to_pylist()
    # Fixed-width text: one long word widens all of them.
    longest = max((len(word) for word in words if isinstance(word, str)), default=0)
    check_unpacked_size(4 * longest * len(column), path)
    found: Array = np.array(words)[pieces.indices.to_numpy()]
    return found


def _check_no_nulls(column: pa.ChunkedArray, path: Path) -> None:
    if column.null_count:
        raise DataError(
            f"{path} must have a value in every cell, but {column.null_count} of "
            f"{len(column)} are empty. Fill them or drop their rows."
        )


# --- Parquet and Feather


def open_parquet(path: Path, *, n_columns: int = 1) -> pq.ParquetFile:
    """Open a file to read so many columns of it side by side; only its footer is read.

    Pages are read one by one and let go again: a row group may exceed memory.
    """
    try:
        return pq.ParquetFile(
            path,
            page_checksum_verification=True,
            buffer_size=min(_BUFFER_BYTES, _BUFFERS_BYTES // n_columns),
            pre_buffer=False,
        )
    except FileNotFoundError as error:
        raise DataError(
            f"{path} must be there while its rows are used, but cannot be opened "
            f"({one_line(error)}). Put it back."
        ) from error


def _parquet_schema(path: Path) -> pa.Schema:
    with open_parquet(path) as file:
        return file.schema_arrow


def _read_parquet(path: Path, names: list[str]) -> pa.Table:
    with open_parquet(path) as file:
        check_unpacked_size(_unpacked_bytes(file.metadata, names), path)
        table = file.read(columns=names)
    check_table(table, names, path)
    return table


def _unpacked_bytes(metadata: pq.FileMetaData, names: list[str]) -> int:
    """Return the memory that columns take, by the file's footer."""
    chunks = (
        metadata.row_group(group).column(number)
        for group in range(metadata.num_row_groups)
        for number in range(metadata.num_columns)
    )
    wanted = set(names)
    # Values that repeat are few bytes in the file, whatever it was packed with. The
    # values of lists are two levels down: "features.list.element".
    return sum(
        max(chunk.total_uncompressed_size, 8 * chunk.num_values)
        for chunk in chunks
        if wanted & {chunk.path_in_schema, chunk.path_in_schema.rsplit(".", 2)[0]}
    )


def check_table(table: pa.Table, names: list[str], path: Path) -> None:
    """Refuse a table with damaged columns, or with others than were asked for."""
    table.validate(full=True)
    if table.column_names != names:
        raise DataError(
            f"{path} must name its columns alike in all its parts, but does not. "
            "The file is damaged: write or fetch it again."
        )


def _feather_schema(path: Path) -> pa.Schema:
    with pa.OSFile(str(path)) as stream, pa.ipc.open_file(stream) as file:
        return file.schema


def _read_feather(path: Path, names: list[str]) -> pa.Table:
    n_bytes = 0
    batches = []
    with pa.memory_map(str(path)) as stream, pa.ipc.open_file(stream) as file:
        for number in range(file.num_record_batches):
            batches.append(file.get_batch(number).select(names))
            n_bytes += batches[-1].nbytes
            check_unpacked_size(n_bytes, path)
        schema = pa.schema([file.schema.field(name) for name in names])
    table = pa.Table.from_batches(batches, schema)
    check_table(table, names, path)
    return table


def _write_parquet(path: Path, table: pa.Table) -> None:
    pq.write_table(table, path, write_page_checksum=True)


def _write_feather(path: Path, table: pa.Table) -> None:
    feather.write_feather(table, str(path))


def _column_format(
    read_schema: Callable[[Path], pa.Schema],
    read: Callable[[Path, list[str]], pa.Table],
    write: Callable[[Path, pa.Table], None],
) -> Format:
    """Build the format of files that hold columns, each with a name and a type."""

    def read_rows(path: Path, name: str | None) -> Array:
        names = row_columns(read_schema(path), name, path)
        return table_rows(read(path, names), path)

    def read_labels(path: Path, name: str | None) -> Array:
        schema = read_schema(path)
        if name is None:
            name = _label_column(_columns(schema, path), path)
        column = read(path, [_named(schema.names, name, path)]).column(0)
        is_number = _is_number(column.type)
        return _values(column, path) if is_number else _words(column, path)

    def write_rows(path: Path, array: Array) -> None:
        _require_matrix(array, path)
        values = pa.array(np.ascontiguousarray(array).reshape(-1))
        rows = pa.FixedSizeListArray.from_arrays(values, array.shape[1])
        write(path, pa.table({"features": rows}))

    def write_labels(path: Path, labels: Array) -> None:
        write(path, pa.table({"label": labels}))

    return Format(read_rows, read_labels, write_rows, write_labels)


def _require_matrix(array: Array, path: Path) -> None:
    if array.ndim != 2:
        raise DataError(
            f"A {path.suffix} file holds rows of numbers, got an array of {array.ndim} "
            "dimensions. Flatten each sample, or write .npy."
        )


# --- CSV


@dataclass(frozen=True)
class _FirstLine:
    """What a table of text begins with: its first line that is not blank.

    ``names`` is None where that line is a row; ``number`` counts lines from 1.
    """

    cells: list[str]
    names: list[str] | None
    number: int


def column_names(path: Path) -> tuple[str, ...] | None:
    """Return the names of the columns of a ``.csv`` or ``.feather`` file.

    None if it has none, if they only count, and for rows that are lists.
    """
    if path.suffix.lower() == ".feather":
        schema = _feather_schema(path)
        has_lists = any(is_list(field.type) for field in schema)
        return None if has_lists else tuple(_columns(schema, path))
    names = _first_line(path).names
    return None if names is None or _is_count(names) else tuple(names)


def _read_csv_rows(path: Path, name: str | None) -> Array:
    """Return the numbers as float64: all columns, or the one of that name."""
    first = _first_line(path)
    names = first.names or []
    column = None if name is None else names.index(_named(names, name, path))
    if name is None and "" in names:
        raise DataError(
            f"{path} must name every column in its header line, but column "
            f"{1 + first.cells.index('')} has no name. If it is a row index, write the "
            "file without it (pandas: index=False)."
        )
    n_skipped = 0 if first.names is None else first.number
    try:
        table = _read_csv(path, first, pa.float64(), n_skipped, column)
    except pa.ArrowInvalid as error:
        _explain(path, n_skipped, are_numbers=True)
        raise DataError(f"{path} must hold numbers only: {one_line(error)}.") from error
    return table_rows(table, path) if table.num_columns else np.empty((0, 0))


def _read_csv_labels(path: Path, name: str | None) -> Array:
    """Return one label a line: whole numbers if all are, else text."""
    first = _first_line(path)
    if not first.cells:
        return np.empty(0, dtype=np.int64)
    cells = [cell.strip() for cell in first.cells]
    column = 0
    if len(cells) > 1:
        name = _named(cells, name or _label_column(cells, path), path)
        column = cells.index(name)
    try:
        table = _read_csv(path, first, pa.string(), 0, column)
    except pa.ArrowInvalid as error:
        _explain(path, 0, are_numbers=False)
        raise DataError(f"{path} must hold text: {one_line(error)}.") from error
    labels = pc.utf8_trim_whitespace(table.column(0))
    if len(cells) > 1 or _is_name(cells[0], labels[1:], name):
        labels = labels[1:]
    _check_gaps(labels, path)
    if len(cells) == 1:
        _warn_of_name(labels, path)
    for kind in (pa.int64(), pa.float64()):
        try:
            return _values(labels.cast(kind), path)
        except pa.ArrowInvalid:
            continue
    return _words(labels, path)


def _write_csv_rows(path: Path, array: Array) -> None:
    """Write numbers in their shortest exact form, one row a line, without a header."""
    _require_matrix(array, path)
    numbers = array.astype(np.uint8) if array.dtype.kind == "b" else array
    # A first row 0, 1, 2 and so on would be read as names of columns: not 0.0, 1, 2.
    is_count = len(array) and _is_count([str(number) for number in numbers[0]])
    with path.open("w", encoding="utf-8") as stream:
        if is_count:
            stream.write(",".join(["0.0", *map(str, numbers[0, 1:])]) + "\n")
        np.savetxt(stream, numbers[1:] if is_count else numbers, "%s", delimiter=",")


def _write_csv_labels(path: Path, labels: Array) -> None:
    """Write one label a line under the header ``label``, or another if that is one."""
    numbers = labels.astype(np.uint8) if labels.dtype.kind == "b" else labels
    taken = set(labels.tolist()) if labels.dtype.kind == "U" else set()
    if any(not label.strip() for label in taken):
        raise DataError(
            f"Labels in {path} must not be blank, which reads as missing in a .csv "
            "file, but some are. Name them, or write .npy."
        )
    free = [name for name in ("label", *LABEL_NAMES) if name not in taken]
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([free[0] if free else "label"])
        writer.writerows([label] for label in numbers.tolist())


def _read_csv(
    path: Path, first: _FirstLine, kind: pa.DataType, n_skipped: int, column: int | None
) -> pa.Table:
    """Read all columns, or one, as values of a type."""
    keys = [str(number) for number in range(len(first.cells))]
    if not keys:
        return pa.table({})
    # A block must hold the longest line.
    line_bytes = 32 * sum(len(cell) + 1 for cell in first.cells)
    return pa_csv.read_csv(
        path,
        read_options=pa_csv.ReadOptions(
            column_names=keys,
            skip_rows=n_skipped,
            block_size=min(max(2**20, line_bytes), 2**30),
        ),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True),
        convert_options=pa_csv.ConvertOptions(
            column_types=dict.fromkeys(keys, kind),
            include_columns=keys if column is None else [keys[column]],
            null_values=[],
        ),
    )


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) of each line that is not blank."""
    with path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.reader(stream)
        yield from ((reader.line_num, cells) for cells in reader if cells)


def _first_line(path: Path) -> _FirstLine:
    lines = _lines(path)
    number, cells = next(lines, (0, []))
    _, below = next(lines, (0, []))
    words = [cell.strip().lower() for cell in cells if not _is_float(cell)]
    numbers = [float(cell) for cell in cells if _is_float(cell)]
    if words:
        is_row = bool(numbers) and (_GAPS.issuperset(words) or not _are_names(numbers))
    else:
        is_row = bool(numbers) and not _are_counted(cells, below)
    names = None if is_row else [cell.strip() for cell in cells]
    return _FirstLine(cells, names, number)


def _are_names(numbers: Sequence[float]) -> bool:
    """Return whether numbers beside words may name columns, as years or wavelengths do.

    They differ, and are whole, or rise or fall all the way if they are many. NaN and
    infinity beside words are words.
    """
    finite = [number for number in numbers if math.isfinite(number)]
    is_sorted = sorted(finite) in (finite, finite[::-1])
    is_long = len(finite) >= _MANY_COLUMNS
    are_whole = all(map(float.is_integer, finite))
    return len(set(finite)) == len(finite) and (are_whole or (is_long and is_sorted))


def _are_counted(cells: Sequence[str], below: Sequence[str]) -> bool:
    """Return whether 0, 1, 2 and so on are names, which pandas gives where it has none.

    They are above numbers that are not whole; above whole ones if they are many, and
    counting does not go on.
    """
    if not _is_count(cells) or not below:
        return False
    has_fractions = not all(cell.strip().lstrip("+-").isdigit() for cell in below)
    goes_on = below[0].strip() == str(len(cells))
    return has_fractions or (len(cells) >= _MANY_COLUMNS and not goes_on)


def _is_count(cells: Sequence[str]) -> bool:
    counted = [str(number) for number in range(len(cells))]
    return len(cells) > 1 and [cell.strip() for cell in cells] == counted


def _is_float(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _explain(path: Path, n_skipped: int, *, are_numbers: bool) -> None:
    """Raise the error that names the first cell or line that cannot be read."""
    width = 0
    for number, cells in _lines(path):
        # Cells that are numbers made a row of the first line.
        or_name = "" if width else ", or name all columns by words"
        width = width or len(cells)
        if len(cells) != width:
            raise DataError(
                f"{path} must have equally many cells in each line, but line {number} "
                f"has {len(cells)} and the first {width}. Complete or remove that line."
            )
        for column, cell in enumerate(cells, start=1):
            if are_numbers and number > n_skipped and not _is_float(cell):
                raise DataError(
                    f"{path} must hold numbers separated by commas, but line {number}, "
                    f"column {column} is {cell[:40]!r}. Correct it{or_name}, or drop "
                    "the column."
                )


def _is_name(first: str, labels: pa.ChunkedArray, name: str | None) -> bool:
    """Return whether the first line of one column is its name, and not a label."""
    below = pc.unique(labels).to_pylist()
    # Labels can be "y" and "n": a name that comes again is one of them.
    if first in (*LABEL_NAMES, name) and first not in below:
        return True
    return all(map(_is_float, below)) and not _is_float(first)


def _warn_of_name(labels: pa.ChunkedArray, path: Path) -> None:
    """Warn if the first of several words comes once and all others come again."""
    found = pc.value_counts(labels).to_pylist()  # in the order in which they come
    first = found[0]["values"] if found else ""
    is_alone = len(found) > 1 and found[0]["counts"] == 1
    if is_alone and min(n["counts"] for n in found[1:]) > 1 and not _is_float(first):
        warnings.warn(
            f"The first line of {path}, {one_line(first, longest=40)!r}, is taken "
            "for a label, though no other line has it and every other label comes "
            "again. If it is the name of the column, call it 'label'.",
            DegenerateWarning,
            stacklevel=3,
        )


def _check_gaps(labels: pa.ChunkedArray, path: Path) -> None:
    """Refuse numbers some of which are missing; warn of words that may say so."""
    words = pc.unique(labels).to_pylist()
    gaps = sorted(word for word in words if word.lower() in _GAPS)
    if not gaps:
        return
    if gaps[0] == "":
        raise DataError(
            f"{path} must have a label in every line, but that of row "
            f"{pc.index(labels, '')}, counted from 0, is empty. Fill it in, or leave "
            "the line out, and its row with it."
        )
    if all(word in gaps or _is_float(word) for word in words):
        raise DataError(
            f"{path} must have a label in every line, but some are {gaps[0]!r}. Fill "
            "them in, or leave the lines out, and their rows with them."
        )
    warnings.warn(
        f"Some labels of {path} are {gaps[0]!r}, which may stand for one that is "
        "missing, and is taken for a class. Rename it if it is one.",
        DegenerateWarning,
        stacklevel=3,
    )


PARQUET = _column_format(_parquet_schema, _read_parquet, _write_parquet)
FEATHER = _column_format(_feather_schema, _read_feather, _write_feather)
CSV = Format(_read_csv_rows, _read_csv_labels, _write_csv_rows, _write_csv_labels)
