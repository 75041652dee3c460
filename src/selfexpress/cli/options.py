"""Values of options that have more than one type."""

from __future__ import annotations

import typer

from selfexpress.config import AUTO


def parse_count(text: str) -> int | str:
    """Return an integer or "auto"; whoever takes it says if it is too small."""
    if text == AUTO:
        return text
    try:
        return int(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"it must be an integer or auto, got {text!r}. Use a number, or auto to "
            "have it chosen."
        ) from error
