from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest
import torch

from selfexpress.rows.sources import ArraySource, RowSource, UnitRows


def arrays(tmp_path):
    rows = np.arange(21, dtype=np.float64).reshape(7, 3)
    path = tmp_path / "rows.npy"
    np.save(path, rows)
    read_only = rows.copy()
    read_only.flags.writeable = False
    return [
        rows,
        torch.from_numpy(rows),
        np.load(path, mmap_mode="r"),
        np.asfortranarray(rows),
        rows.astype(np.int32),
        read_only,
    ]


@pytest.mark.parametrize("block_size", [1, 3, 7, 50])
def test_blocks_hold_all_rows_in_order_every_time(block_size, tmp_path):
    expected = torch.arange(21, dtype=torch.float32).view(7, 3)
    for array in arrays(tmp_path):
        source = ArraySource(array)
        assert isinstance(source, RowSource)
        assert (len(source), source.n_features) == (7, 3)
        for _ in range(2):
            blocks = list(source.blocks(block_size))
            assert torch.equal(torch.cat([block.rows for block in blocks]), expected)
            index = torch.cat([block.index for block in blocks])
            assert torch.equal(index, torch.arange(7))


def test_take_returns_rows_in_the_order_asked_for(tmp_path):
    index = torch.tensor([5, 0, 5])
    for array in arrays(tmp_path):
        taken = ArraySource(array, dtype=torch.float64).take(index)
        assert taken[:, 0].tolist() == [15, 0, 15]
        assert taken.dtype == torch.float64


def test_unit_rows_are_those_of_the_source_scaled():
    source = UnitRows(ArraySource(np.array([[3.0, 4.0], [0.0, 0.0], [0.0, 2.0]])))
    expected = torch.tensor([[0.6, 0.8], [0.0, 0.0], [0.0, 1.0]])
    assert isinstance(source, RowSource)
    assert (len(source), source.n_features) == (3, 2)
    torch.testing.assert_close(next(source.blocks(9)).rows, expected)
    torch.testing.assert_close(source.take(torch.tensor([2, 0])), expected[[2, 0]])


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * mmap.PAGESIZE


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_a_mapped_file_does_not_pile_up_in_memory(tmp_path):
    np.save(tmp_path / "rows.npy", np.ones((300_000, 64), dtype=np.float32))  # 77 MB
    source = ArraySource(np.load(tmp_path / "rows.npy", mmap_mode="r"))
    next(source.blocks(4096))
    before = resident_bytes()
    most = before
    for block in source.blocks(4096):
        assert (block.rows == 1).all()
        most = max(most, resident_bytes())
    assert most - before < 30e6


def test_changes_to_a_mapped_array_survive_its_reading(tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros((4, 2)))
    array = np.load(tmp_path / "rows.npy", mmap_mode="c")
    array[1] = 5
    source = ArraySource(array)
    for _ in range(2):
        assert source.take(torch.tensor([1])).tolist() == [[5, 5]]


def test_a_plain_array_is_no_source():
    assert not isinstance(np.zeros((2, 2)), RowSource)
    assert not isinstance(torch.zeros(2, 2), RowSource)
