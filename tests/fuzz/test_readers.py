"""A small, fixed part of ``make fuzz``, in the time that a test may take."""

from __future__ import annotations

from fuzz.run import run
from fuzz.targets import targets

from selfexpress.files.arrays import FORMATS


def test_damaged_files_give_only_our_own_errors():
    readers = run(900, seed=1)
    found = {name: c["findings"] for name, c in readers.items() if c["findings"]}
    assert not found
    n_read, n_refused = (
        sum(counts[key] for counts in readers.values()) for key in ("read", "refused")
    )
    assert n_read + n_refused >= 900
    # Damage that nobody notices, or that everybody refuses, would test nothing.
    assert 0.02 < n_read / (n_read + n_refused) < 0.6


def test_every_reader_is_a_target():
    names = {target.name for target in targets()}
    assert {f"rows-{suffix.removeprefix('.')}" for suffix in FORMATS} <= names
    assert {f"labels-{suffix.removeprefix('.')}" for suffix in FORMATS} <= names
    assert {"model", "checkpoint", "components", "shards"} <= names
