"""A check that a file is refused as it should be."""

from __future__ import annotations

import tracemalloc

import pytest

from selfexpress.errors import DataError
from selfexpress.files.arrays import read_array

# Far above what any file of these tests needs, far below what a lie would claim.
MEMORY_LIMIT = 20 * 2**20


def refused(path, words, *, read=read_array, **options):
    """Check that a file is refused in one line that names it, without much memory."""
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=words) as caught:
            read(path, **options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    assert len(message) < 600
    assert peak < MEMORY_LIMIT
