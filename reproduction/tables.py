"""Tables as Markdown and as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table in Markdown; columns of numbers are set right.

    Parameters
    ----------
    headings : sequence of str
    rows : sequence of sequences
        Entries are shown by ``str``; a bar in one is escaped.
    """
    rule = [
        "---:" if all(_is_number(str(row[place])) for row in rows) else "---"
        for place in range(len(headings))
    ]
    lines = [list(headings), rule, *([str(entry) for entry in row] for row in rows)]
    return "\n".join(
        f"| {' | '.join(entry.replace('|', chr(92) + '|') for entry in line)} |"
        for line in lines
    )


def terminal_table(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[object]]
) -> Table:
    """Return a table to print with rich.

    Parameters
    ----------
    title : str
    headings : sequence of str
    rows : sequence of sequences
        Entries are shown by ``str``; brackets in them are not markup.
    """
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title), title_justify="left")
    for place, heading in enumerate(headings):
        is_number = all(_is_number(str(row[place])) for row in rows)
        table.add_column(escape(heading), justify="right" if is_number else "left")
    for row in rows:
        table.add_row(*(escape(str(entry)) for entry in row))
    return table


def _is_number(entry: str) -> bool:
    """Return whether an entry is a figure, or a place left empty for one."""
    return not entry.strip("- ") or entry.lstrip("-[")[:1].isdigit()
