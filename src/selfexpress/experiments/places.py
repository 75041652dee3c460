"""Where records and cached features go unless a folder is named."""

from __future__ import annotations

from pathlib import Path

from selfexpress.experiments.records import checkout


def default_records(is_quick: bool) -> Path:
    """Return the folder of records: in the source checkout, where there is one."""
    if is_quick:
        return default_cache() / "quick-records"
    root = checkout()
    if root is None:
        return Path("reproduction-records")
    return root / "benchmarks" / "records" / "reproduction"


def default_cache() -> Path:
    """Return the folder of what can be computed again; git ignores it."""
    return (checkout() or Path()) / ".reproduction-cache"
