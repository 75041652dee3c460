"""A small, fixed part of ``make fuzz``, in the time that a test may take."""

from __future__ import annotations

import gzip
import io
import json
import zipfile

import numpy as np
import pytest
from fuzz import mutations
from fuzz.run import run
from fuzz.targets import targets

from selfexpress.files.arrays import FORMATS


def test_damaged_files_give_only_our_own_errors():
    summary = run(900, seed=1)
    found = {
        name: counts["findings"]
        for name, counts in summary["readers"].items()
        if counts["findings"]
    }
    assert not found
    assert summary["inputs"] >= 900
    # Damage that nobody notices, or that everybody refuses, would test nothing.
    assert all(
        counts["read"] + counts["refused"] == counts["inputs"]
        for counts in summary["readers"].values()
    )
    assert 0.02 < sum(c["read"] for c in summary["readers"].values()) / 900 < 0.6


def test_every_reader_is_a_target():
    names = {target.name for target in targets()}
    assert {f"rows-{suffix.removeprefix('.')}" for suffix in FORMATS} <= names
    assert {f"labels-{suffix.removeprefix('.')}" for suffix in FORMATS} <= names
    assert {"model", "checkpoint", "shards"} <= names


@pytest.mark.parametrize("mutation", mutations.BLIND, ids=lambda m: m.__name__)
def test_changes_are_a_function_of_the_random_state(mutation, seed):
    content = b"\x93NUMPY{'shape': (3, 4), 'descr': '<f8'}" + bytes(range(200))
    first, second = (
        mutation(content, np.random.default_rng(seed), content[::-1]) for _ in range(2)
    )
    assert first == second


def test_changes_inside_archives_leave_archives(seed):
    rng = np.random.default_rng(seed)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, X=np.arange(6.0))
    changed = mutations.in_zip(buffer.getvalue(), rng, buffer.getvalue())
    assert zipfile.ZipFile(io.BytesIO(changed)).testzip() is None
    packed = gzip.compress(b"content")
    assert isinstance(gzip.decompress(mutations.in_gzip(packed, rng, packed)), bytes)
    document = b'{"a": [1, {"b": 2}]}'
    json.loads(mutations.in_json(document, rng, document))
