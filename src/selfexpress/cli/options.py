"""Values of options that have more than one type."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import typer

from selfexpress.config import AUTO

_Number = TypeVar("_Number", int, float)


def parse_count(text: str) -> int | str:
    """Return an integer or "auto"; whoever takes it says if it is too small."""
    return _parse(text, int, "an integer")


def parse_number(text: str) -> float | str:
    """Return a number or "auto"; whoever takes it says if it is out of range."""
    return _parse(text, float, "a number")


def _parse(text: str, convert: Callable[[str], _Number], what: str) -> _Number | str:
    if text == AUTO:
        return text
    try:
        return convert(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"it must be {what} or auto, got {text!r}. Use a number, or auto to "
            "have it chosen."
        ) from error
