"""Where records and cached features go unless a folder is named."""

from __future__ import annotations

from pathlib import Path

from reproduction.record import RECORDS, ROOT


def default_records(is_quick: bool) -> Path:
    """Return the folder of records; that of quick runs is not committed."""
    return default_cache() / "quick-records" if is_quick else RECORDS


def default_cache() -> Path:
    """Return the folder of what can be computed again; git ignores it."""
    return ROOT / ".reproduction-cache"
