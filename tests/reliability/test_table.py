"""The table in ``docs/reliability.md`` and the tests of this folder are the same."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "reliability.md"
MODULES = ("test_inputs.py", "test_files.py", "test_faults.py")


def rows() -> list[list[str]]:
    """Return the cells of every row that names a test."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if len(row) == 3 and "::" in row[2]]


def functions() -> list[str]:
    """Return every test function of the modules."""
    return [
        f"{module}::{node.name}"
        for module in MODULES
        for node in ast.parse((HERE / module).read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


def test_every_row_is_a_test_and_every_test_a_row():
    named = [re.fullmatch(r"`(.*)`", row[2])[1] for row in rows()]
    assert Counter(named) == Counter(functions())


def test_every_row_says_what_happens():
    assert len(rows()) > 40
    assert all(all(row) for row in rows())
