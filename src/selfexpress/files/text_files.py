"""Numbers and labels in ``.csv`` files: commas, with or without a header line."""

from __future__ import annotations

import csv
import math
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path

import numpy as np

from selfexpress.errors import DataError, DegenerateWarning, one_line
from selfexpress.files.formats import (
    LABEL_NAMES,
    Array,
    Format,
    check_unpacked_size,
    listing,
)

# So many numbers do not count by chance.
_MANY_COLUMNS = 8
# What stands for a value that is missing, or could not be computed; "nan" is a number.
_GAPS = {"", "na", "n/a", "<na>", "#na", "#n/a", "#n/a n/a", "nil", "null", "none"}
_GAPS |= {"?", "-", "--", ".", "missing"}
_GAPS |= {"#value!", "#div/0!", "#num!", "#ref!", "#name?"}


def read_rows(path: Path, name: str | None) -> Array:
    """Return the numbers as float64: all columns, or the one of that name."""
    header = _header(path)
    column = None if name is None else _column_of(header or [], name, path)
    n_skipped = 0
    if header is None:
        _warn_of_names(path)
    else:
        n_skipped, _ = next(_lines(path))
    try:
        # A first line without values would make loadtxt warn instead of failing.
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = np.loadtxt(
                stream,
                delimiter=",",
                comments=None,
                quotechar='"',
                skiprows=n_skipped,
                usecols=column,
                ndmin=2,
            )
    except ValueError as error:
        _explain(path, has_header=header is not None)
        raise DataError(f"{path} must hold numbers only: {one_line(error)}.") from error
    return rows


def column_names(path: Path) -> tuple[str, ...] | None:
    """Return the names of the columns; None without names, or if they only count."""
    header = _header(path)
    if header is None or _is_count(header):
        return None
    return tuple(cell.strip() for cell in header)


def read_labels(path: Path, name: str | None) -> Array:
    """Return one label a line: whole numbers if all are, else text."""
    lines = list(_lines(path))
    if not lines:
        return np.empty(0, dtype=np.int64)
    (_, first), *rest = lines
    column = 0
    if len(first) > 1:
        column = _column_of(first, name or _usual_name(first, path), path)
    for number, cells in rest:
        if not cells[column].strip():
            raise DataError(
                f"{path} must have a label in every line, but line {number} has none. "
                "Fill it in, or leave the line out, and its row with it."
            )
    labels = [cells[column].strip() for _, cells in rest]
    first = [cell.strip() for cell in first]
    _check_gaps(labels, path)
    if len(first) > 1:
        return _labels(labels, path)
    # Labels can be "y" and "n": a name that comes again is one of them.
    is_name = first[0] in (*LABEL_NAMES, name) and first[0] not in labels
    is_numeric = all(map(_is_number, labels))
    if is_name or (is_numeric and not _is_number(first[0])):
        return _labels(labels, path)
    if not is_numeric and _stands_out(first[0], labels):
        warnings.warn(
            f"The first line of {path}, {one_line(first[0], longest=40)!r}, is taken "
            "for a label, though no other line has it and every other label comes "
            "again. If it is the name of the column, call it 'label'.",
            DegenerateWarning,
            stacklevel=3,
        )
    return _labels([first[0], *labels], path)


def _check_gaps(labels: Sequence[str], path: Path) -> None:
    """Refuse numbers some of which are missing; warn of words that may say so."""
    gaps = sorted({label for label in labels if label.lower() in _GAPS})
    if not gaps:
        return
    if all(label in gaps or _is_number(label) for label in labels):
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


def _stands_out(first: str, labels: Sequence[str]) -> bool:
    """Tell whether all labels come again and the first line does not."""
    return first not in labels and min(Counter(labels).values(), default=0) > 1


def write_rows(path: Path, array: Array) -> None:
    """Write numbers in their shortest exact form, one row a line, without a header."""
    if array.ndim != 2:
        raise DataError(
            f"A .csv file holds rows of numbers, got an array of {array.ndim} "
            "dimensions. Flatten each sample, or write .npy."
        )
    numbers = array.astype(np.uint8) if array.dtype.kind == "b" else array
    # A first row 0, 1, 2 and so on would be read as names of columns: not 0.0, 1, 2.
    is_count = len(array) and _is_count([str(number) for number in numbers[0]])
    first = ["0.0", *map(str, numbers[0, 1:])] if is_count else None
    with path.open("w", encoding="utf-8") as stream:
        if first is not None:
            stream.write(",".join(first) + "\n")
            numbers = numbers[1:]
        np.savetxt(stream, numbers, fmt="%s", delimiter=",")


def write_labels(path: Path, labels: Array) -> None:
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


CSV = Format(read_rows, read_labels, write_rows, write_labels)


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) of each line that is not blank, all equally wide."""
    width = 0
    with path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.reader(stream)
        for cells in reader:
            if not cells:
                continue
            width = width or len(cells)
            if len(cells) != width:
                raise DataError(
                    f"{path} must have equally many cells in each line, but line "
                    f"{reader.line_num} has {len(cells)} and the first {width}. "
                    "Complete or remove that line."
                )
            yield reader.line_num, cells


def _header(path: Path) -> list[str] | None:
    """Return the first line's cells if they are names, None if they are numbers."""
    first_lines = [cells for _, cells in islice(_lines(path), 2)]
    cells = first_lines[0] if first_lines else []
    if all(map(_is_number, cells)):
        return cells if len(first_lines) == 2 and _are_counted(*first_lines) else None
    if _is_row_with_gaps(cells):
        # Refused where numbers are read.
        return None
    if not all(cell.strip() for cell in cells):
        raise DataError(
            f"{path} must name every column in its header line, but column "
            f"{1 + [cell.strip() for cell in cells].index('')} has no name. If it is "
            "a row index, write the file without it (pandas: index=False)."
        )
    return cells


def _is_row_with_gaps(cells: Sequence[str]) -> bool:
    """Tell whether a first line is a row: some numbers, and what is none of them."""
    words = [cell.strip().lower() for cell in cells if not _is_number(cell)]
    numbers = [float(cell) for cell in cells if _is_number(cell)]
    if not numbers or not any(words):
        return False
    return _GAPS.issuperset(words) or not _are_names(numbers)


def _are_names(numbers: Sequence[float]) -> bool:
    """Tell whether numbers beside words may name columns, as years or wavelengths do.

    They differ, and are whole, or rise or fall all the way if they are many. NaN and
    infinity beside words are words.
    """
    finite = [number for number in numbers if math.isfinite(number)]
    if len(set(finite)) < len(finite):
        return False
    is_sorted = sorted(finite) in (finite, finite[::-1])
    is_long = len(finite) >= _MANY_COLUMNS
    return all(map(float.is_integer, finite)) or (is_long and is_sorted)


def _warn_of_names(path: Path) -> None:
    """Warn if a first row counts on in steps of one, and the next does not."""
    lines = [cells for _, cells in islice(_lines(path), 2)]
    first = lines[0] if len(lines) == 2 else []
    if len(first) > 2 and _counts_on(first) and not _counts_on(lines[1]):
        warnings.warn(
            f"The first line of {path}, {one_line(','.join(first), longest=40)!r}, is "
            "taken for a row, though it counts and the next does not. If it holds the "
            "names of the columns, name them by words.",
            DegenerateWarning,
            stacklevel=3,
        )


def _counts_on(cells: Sequence[str]) -> bool:
    try:
        numbers = [int(cell) for cell in cells]
    except ValueError:
        return False
    return all(after == before + 1 for before, after in pairwise(numbers))


def _are_counted(cells: Sequence[str], below: Sequence[str]) -> bool:
    """Tell whether 0, 1, 2 and so on are names, which pandas gives where it has none.

    They are above numbers that are not whole; above whole ones if they are many, and
    counting does not go on.
    """
    if not _is_count(cells):
        return False
    has_fractions = not all(cell.strip().lstrip("+-").isdigit() for cell in below)
    goes_on = below[0].strip() == str(len(cells))
    return has_fractions or (len(cells) >= _MANY_COLUMNS and not goes_on)


def _is_count(cells: Sequence[str]) -> bool:
    counted = [str(number) for number in range(len(cells))]
    return len(cells) > 1 and [cell.strip() for cell in cells] == counted


def _explain(path: Path, *, has_header: bool) -> None:
    """Raise the error that names the first line that is not all numbers."""
    for position, (number, cells) in enumerate(_lines(path)):
        if has_header and position == 0:
            continue
        for column, cell in enumerate(cells, start=1):
            if not _is_number(cell):
                # Cells that are numbers made a row of it.
                or_name = "" if position else ", or name all columns by words"
                raise DataError(
                    f"{path} must hold numbers separated by commas, but line {number}, "
                    f"column {column} is {cell[:40]!r}. Correct it{or_name}, or drop "
                    "the column."
                )


def _column_of(header: Sequence[str], name: str, path: Path) -> int:
    names = [cell.strip() for cell in header]
    if name not in names:
        raise DataError(
            f"{path} must hold the column that was asked for, {name!r}, but its header "
            f"line names {listing(names)}. Name one of these."
        )
    return names.index(name)


def _usual_name(header: Sequence[str], path: Path) -> str:
    names = [cell.strip() for cell in header]
    for candidate in LABEL_NAMES:
        if candidate in names:
            return candidate
    raise DataError(
        f"{path} must hold one column of labels, or one under a usual name "
        f"({', '.join(LABEL_NAMES)}), but holds {listing(names)}. Name one of these."
    )


def _labels(cells: list[str], path: Path) -> Array:
    if all(map(_is_number, cells)):
        try:
            return np.array([int(cell) for cell in cells], dtype=np.int64)
        except ValueError:
            return np.array([float(cell) for cell in cells])
    # Fixed-width text: one long cell widens all of them.
    check_unpacked_size(4 * len(cells) * max(map(len, cells)), path)
    return np.array(cells)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
