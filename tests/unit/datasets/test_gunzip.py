from __future__ import annotations

import gzip
import io
import zlib

import numpy as np
import pytest

from selfexpress.datasets.verified import GunzipReader, open_gzip


def read_all(content: bytes, size: int) -> bytes:
    reader = GunzipReader(io.BytesIO(content))
    return b"".join(iter(lambda: reader.read(size), b""))


@pytest.mark.parametrize("size", [1, 7, 1000, 10**6])
@pytest.mark.parametrize("n_bytes", [0, 1, 5000, 300_000])
def test_unpacking_gives_what_was_packed(n_bytes, size, seed):
    if n_bytes // size > 10_000:
        size = 97
    rng = np.random.default_rng(seed)
    for original in (bytes(n_bytes), rng.bytes(n_bytes)):
        assert read_all(gzip.compress(original), size) == original


def test_no_more_is_unpacked_than_is_asked_for():
    reader = GunzipReader(io.BytesIO(gzip.compress(bytes(10**8))))
    assert reader.read(10) == bytes(10)


def test_streams_that_end_early_or_differ_from_their_checksum_are_errors(seed):
    content = gzip.compress(np.random.default_rng(seed).bytes(5000))
    for length in (5, len(content) // 2, len(content) - 1):
        with pytest.raises(EOFError, match="ends early"):
            read_all(content[:length], 100)
    spoiled = content[:-6] + bytes([content[-6] ^ 1]) + content[-5:]
    with pytest.raises(zlib.error):
        read_all(spoiled, 100)


@pytest.mark.parametrize("more", [b"\0", b"more", gzip.compress(b"more", mtime=0)])
def test_whatever_follows_is_an_error(more):
    with pytest.raises(EOFError, match="something follows"):
        read_all(gzip.compress(b"content", mtime=0) + more, 100)


def test_what_is_not_gzip_is_taken_as_it_is():
    assert open_gzip(io.BytesIO(b"plain")).read(100) == b"plain"
