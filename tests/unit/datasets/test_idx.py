from __future__ import annotations

import io
import tracemalloc

import dataset_files
import numpy as np
import pytest

from selfexpress.datasets.idx import parse_idx, read_idx_selected
from selfexpress.errors import DataError


def test_bytes_written_by_hand_are_read_as_the_array_they_mean():
    content = bytearray(b"\0\0\x08\x02\0\0\0\x02\0\0\0\x03" + bytes([1, 2, 3, 4, 5, 6]))

    array = parse_idx(content, (2, 3), source="hand")

    assert array.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert array.dtype == np.uint8
    assert array.flags.writeable


@pytest.mark.parametrize("shape", [(1,), (5,), (3, 4), (2, 3, 4), (0, 28, 28)])
def test_arrays_of_any_shape_survive_the_format(shape, seed):
    array = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)

    read = parse_idx(bytearray(dataset_files.idx_bytes(array)), shape, source="file")

    np.testing.assert_array_equal(read, array)


@pytest.mark.parametrize(
    "header",
    [
        b"\0\0\x08\x01\xff\xff\xff\xff",  # four billion records
        b"\0\0\x08\x01\0\0\0\x04",  # one record less
        b"\0\0\x08\x01\0\0\0\x06",  # one record more
        b"\0\0\x0d\x01\0\0\0\x05",  # floats
        b"\0\0\x08\x02\0\0\0\x05",  # two dimensions
        b"\x1f\x8b\x08\x01\0\0\0\x05",  # gzip
        b"",
    ],
)
def test_a_header_that_differs_is_refused_and_allocates_nothing(header):
    content = bytearray(header + bytes(5))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="IDX header of unsigned bytes"):
            parse_idx(content, (5,), source="file")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize("n_bytes", [0, 4, 6])
def test_a_body_of_another_length_is_refused(n_bytes):
    content = bytearray(b"\0\0\x08\x01\0\0\0\x05" + bytes(n_bytes))

    with pytest.raises(DataError, match=rf"must hold 13 bytes, got {8 + n_bytes}"):
        parse_idx(content, (5,), source="file")


class Dribble:
    """A stream that hands out at most a few bytes at a time."""

    def __init__(self, content: bytes) -> None:
        self._stream = io.BytesIO(content)

    def read(self, size: int) -> bytes:
        return self._stream.read(min(size, 1000))


# One image, one whole block, a ragged last block.
@pytest.mark.parametrize("n", [1, 4096, 9000])
def test_selected_records_are_those_of_the_whole_array(n, seed):
    rng = np.random.default_rng(seed)
    array = rng.integers(0, 256, (n, 2, 3), dtype=np.uint8)
    keep = rng.random(n) < 0.3

    kept = read_idx_selected(
        Dribble(dataset_files.idx_bytes(array)), array.shape, keep=keep, source="s"
    )

    np.testing.assert_array_equal(kept, array[keep])


@pytest.mark.parametrize("change", [-1, 1])
def test_a_stream_that_ends_early_or_goes_on_is_refused(change):
    content = dataset_files.idx_bytes(np.zeros((10, 2, 2), np.uint8))
    content = content[:change] if change < 0 else content + b"\0"

    with pytest.raises(DataError, match=r"more bytes, but ends|but goes on"):
        read_idx_selected(
            io.BytesIO(content), (10, 2, 2), keep=np.ones(10, bool), source="s"
        )


def test_memory_of_a_selection_does_not_grow_with_the_stream():
    peaks = []
    for n in (20_000, 80_000):
        keep = np.zeros(n, bool)
        keep[:10] = True
        stream = io.BytesIO(dataset_files.idx_bytes(np.zeros((n, 8, 8), np.uint8)))
        tracemalloc.start()
        read_idx_selected(stream, (n, 8, 8), keep=keep, source="s")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]
