from __future__ import annotations

import gc
import threading
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch
from safetensors.numpy import save_file

from selfexpress.errors import DataError, DegenerateWarning
from selfexpress.files.arrays import read_array
from selfexpress.rows.opening import open_rows
from selfexpress.rows.parquet_rows import ParquetRows
from selfexpress.rows.prefetch import Prefetched
from selfexpress.rows.shards import OwnRows, Shards
from selfexpress.rows.sources import (
    ArraySource,
    MappedSource,
    RowBlock,
    RowSource,
    UnitRows,
    blocks_between,
)

N_ROWS, N_FEATURES = 23, 3


def expected_rows() -> np.ndarray:
    values = np.arange(N_ROWS * N_FEATURES, dtype=np.float32)
    return values.reshape(N_ROWS, N_FEATURES)


def write_fixed_lists(path, rows):
    values = pa.array(rows.reshape(-1))
    column = pa.FixedSizeListArray.from_arrays(values, rows.shape[1])
    pq.write_table(pa.table({"features": column}), path, row_group_size=5)


def write_lists(path, rows):
    column = pa.array(rows.tolist(), type=pa.list_(pa.float32()))
    table = pa.table({"id": np.arange(len(rows)), "features": column})
    pq.write_table(table, path, row_group_size=7)


def write_columns(path, rows):
    columns = {f"x{number}": column for number, column in enumerate(rows.T)}
    pq.write_table(pa.table(columns), path, row_group_size=4)


def write_safetensors(path, rows):
    save_file({"other": np.zeros(5, np.uint8), "X": rows}, path)


def write_bfloat16(path, rows):
    tensors = {"other": torch.zeros(5), "X": torch.from_numpy(rows).bfloat16()}
    safetensors.torch.save_file(tensors, path)


def write_folder(path, rows):
    path.mkdir()
    np.save(path / "part-0.npy", rows[:4])
    write_fixed_lists(path / "part-1.parquet", rows[4:15])
    np.savetxt(path / "part-2.csv", rows[15:22], delimiter=",")
    write_safetensors(path / "part-3.safetensors", rows[22:])
    (path / "notes.txt").write_text("not rows")
    (path / ".part-4.npy").write_text("hidden")


FILES = {
    "rows.npy": np.save,
    "fixed.parquet": write_fixed_lists,
    "lists.parquet": write_lists,
    "columns.parquet": write_columns,
    "columns.feather": lambda path, rows: pd.DataFrame(
        rows, columns=[*"abc"]
    ).to_feather(path),
    "rows.safetensors": write_safetensors,
    "halves.safetensors": write_bfloat16,
    "folder": write_folder,
    "rows.csv": lambda path, rows: np.savetxt(path, rows, delimiter=","),
}


@pytest.fixture(params=FILES)
def stored(request, tmp_path) -> RowSource:
    path = tmp_path / request.param
    FILES[request.param](path, expected_rows())
    return open_rows(path)


@pytest.mark.parametrize("block_size", [1, 4, 5, 23, 100])
def test_stored_rows_come_in_order_in_full_blocks_every_time(stored, block_size):
    assert isinstance(stored, RowSource)
    assert (len(stored), stored.n_features) == (N_ROWS, N_FEATURES)
    for _ in range(2):
        blocks = list(stored.blocks(block_size))
        assert all(len(block.rows) == block_size for block in blocks[:-1])
        index = torch.cat([block.index for block in blocks])
        rows = torch.cat([block.rows for block in blocks]).numpy()
        assert index.tolist() == list(range(N_ROWS))
        np.testing.assert_array_equal(rows, expected_rows())


@pytest.mark.parametrize("bounds", [(0, 23), (3, 4), (4, 15), (6, 21), (22, 23)])
def test_a_range_holds_its_rows_alone(stored, bounds):
    start, stop = bounds
    for source in (stored, Prefetched(stored), MappedSource(stored, lambda rows: rows)):
        blocks = list(blocks_between(source, start, stop, block_size=4))
        index = torch.cat([block.index for block in blocks])
        rows = torch.cat([block.rows for block in blocks]).numpy()
        assert index.tolist() == list(range(start, stop))
        np.testing.assert_array_equal(rows, expected_rows()[start:stop])


def test_rows_are_taken_in_the_order_asked_for_with_repeats(stored, seed):
    index = torch.from_numpy(np.random.default_rng(seed).integers(0, N_ROWS, 40))
    taken = stored.take(index).numpy()
    np.testing.assert_array_equal(taken, expected_rows()[index.numpy()])


def test_bfloat16_is_read_as_the_numbers_it_holds(tmp_path):
    rows = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    write_bfloat16(tmp_path / "rows.safetensors", rows)
    expected = torch.from_numpy(rows).bfloat16().float().numpy()
    np.testing.assert_array_equal(read_array(tmp_path / "rows.safetensors"), expected)
    opened = open_rows(tmp_path / "rows.safetensors").take(torch.arange(9))
    np.testing.assert_array_equal(opened.numpy(), expected)


def test_no_rows_can_be_taken(stored):
    assert stored.take(torch.empty(0, dtype=torch.int64)).shape == (0, N_FEATURES)


@pytest.mark.parametrize("row_group_size", [1000, 160_000])
def test_walking_a_parquet_file_holds_a_part_of_it(tmp_path, row_group_size):
    rows = np.random.default_rng(0).normal(size=(160_000, 64)).astype(np.float32)
    values = pa.array(rows.ravel())
    table = pa.table({"x": pa.FixedSizeListArray.from_arrays(values, 64)})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=row_group_size)
    del table, values
    before = pa.total_allocated_bytes()
    held = [
        pa.total_allocated_bytes() - before
        for _ in ParquetRows(tmp_path / "rows.parquet").blocks(2000)
    ]
    assert max(held) < rows.nbytes / 2


def test_taking_rows_decodes_only_the_row_groups_that_hold_them(tmp_path, monkeypatch):
    write_fixed_lists(tmp_path / "rows.parquet", expected_rows())
    source = ParquetRows(tmp_path / "rows.parquet")
    decoded = []
    original = ParquetRows._decoded
    monkeypatch.setattr(
        ParquetRows,
        "_decoded",
        lambda self, batch: decoded.append(len(batch)) or original(self, batch),
    )
    source.take(torch.tensor([6, 9, 21]))
    assert sum(decoded) == 5 + 3  # rows 5 to 9 and 20 to 22


def test_double_precision_survives(tmp_path):
    rows = np.array([[1e200, 1.0], [1.0, 2.0]])
    np.save(tmp_path / "rows.npy", rows)
    write_fixed_lists(tmp_path / "rows.parquet", rows)
    for name in ("rows.npy", "rows.parquet"):
        source = open_rows(tmp_path / name)
        assert source.take(torch.tensor([0])).tolist() == [[1e200, 1.0]]


def test_images_are_flattened(tmp_path):
    np.save(tmp_path / "images.npy", np.arange(24, dtype=np.uint8).reshape(2, 3, 4))
    source = open_rows(tmp_path / "images.npy")
    assert source.n_features == 12
    assert source.take(torch.tensor([1]))[0].tolist() == list(range(12, 24))


def test_lists_of_unequal_length_are_refused_when_they_are_met(tmp_path):
    column = pa.array([[1.0, 2.0]] * 9 + [[3.0]])
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"features": column}), path, row_group_size=5)
    source = open_rows(path)
    with pytest.raises(DataError, match="equal length"):
        list(source.blocks(4))


def test_empty_cells_are_refused_when_they_are_met(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": [1.0, 2.0, None]}), path, row_group_size=2)
    source = open_rows(path)
    with pytest.raises(DataError, match="empty"):
        list(source.blocks(4))


@pytest.mark.parametrize(
    ("name", "content"), [("rows.parquet", b"PAR1junkPAR1"), ("rows.npy", b"junk")]
)
def test_damaged_files_are_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=name):
        open_rows(tmp_path / name)


def test_a_folder_without_rows_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(DataError, match="must hold files ending in"):
        open_rows(tmp_path)


def test_shards_of_unequal_width_are_refused():
    narrow, wide = (ArraySource(np.zeros((2, width))) for width in (2, 3))
    with pytest.raises(DataError, match="shard 1 has 3 and shard 0 2"):
        Shards([narrow, wide])
    with pytest.raises(DataError, match="there are none"):
        Shards([])


def test_own_rows_of_all_processes_make_the_whole():
    rows = torch.from_numpy(expected_rows())
    index = torch.tensor([22, 0, 9, 10, 9])
    parts: list[torch.Tensor] = []
    for start, stop in ((0, 9), (9, 9), (9, 23)):
        own = OwnRows(
            UnitRows(ArraySource(rows)),
            start,
            stop,
            combine=lambda part: parts.append(part) or part,
        )
        assert len(own) == N_ROWS
        blocks = list(own.blocks(4))
        assert [int(i) for block in blocks for i in block.index] == [
            *range(start, stop)
        ]
        own.take(index)
    whole = UnitRows(ArraySource(rows)).take(index)
    assert torch.equal(torch.stack(parts).sum(dim=0), whole)


class Watched(ArraySource):
    """Rows that remember whether any of them was read."""

    is_read = False

    def blocks_between(self, start, stop, *, block_size):
        self.is_read = True
        return super().blocks_between(start, stop, block_size=block_size)

    def take(self, index):
        self.is_read = True
        return super().take(index)


def test_a_process_reads_the_shards_that_it_owns_rows_of_and_no_other():
    shards = [Watched(part) for part in np.split(expected_rows(), [6, 12, 18])]
    own = OwnRows(Shards(shards), 7, 14, combine=lambda part: part)
    assert sum(len(block.rows) for block in own.blocks(3)) == 7
    own.take(torch.tensor([0, 8, 13, 22]))
    assert [shard.is_read for shard in shards] == [False, True, True, False]


class Counting:
    """A source of 10 one-row blocks that counts what was read and may fail."""

    n_features = 1

    def __init__(self, fails_at: int = 99) -> None:
        self.n_read = 0
        self.fails_at = fails_at

    def __len__(self) -> int:
        return 10

    def blocks(self, block_size: int):
        for number in range(10):
            if number == self.fails_at:
                raise DataError("the disk is gone")
            self.n_read += 1
            yield RowBlock(torch.full((1, 1), float(number)), torch.tensor([number]))

    def take(self, index):
        return index[:, None].float()


def n_threads() -> int:
    return sum("Thread" in thread.name for thread in threading.enumerate())


def test_reading_ahead_stops_at_the_depth():
    source = Counting()
    walk = Prefetched(source, depth=3).blocks(1)
    assert float(next(walk).rows) == 0
    time.sleep(0.3)
    assert source.n_read == 4  # one used, three waiting
    assert [float(block.rows) for block in walk] == list(range(1, 10))


def test_an_error_of_the_reader_comes_after_the_blocks_before_it():
    walk = Prefetched(Counting(fails_at=2)).blocks(1)
    assert [float(next(walk).rows) for _ in range(2)] == [0, 1]
    with pytest.raises(DataError, match="the disk is gone"):
        next(walk)


def test_a_walk_left_early_leaves_no_thread_behind():
    gc.collect()
    before = n_threads()
    for _ in range(5):
        walk = Prefetched(Counting()).blocks(1)
        next(walk)
        walk.close()
    del walk
    gc.collect()
    assert n_threads() == before


def test_damage_inside_a_parquet_file_is_one_clear_error(tmp_path, seed):
    path = tmp_path / "rows.parquet"
    rows = np.random.default_rng(seed).normal(size=(500, 4)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), 4)
    table = pa.table({"features": column})
    pq.write_table(table, path, compression="none", write_page_checksum=True)
    source = open_rows(path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(DataError, match="must be a whole"):
        list(source.blocks(50))


def test_shards_with_other_columns_are_refused_by_name(tmp_path):
    rows = expected_rows()
    write_columns(tmp_path / "a.parquet", rows)
    assert open_rows(tmp_path).feature_names == ("x0", "x1", "x2")
    turned = pa.table({f"x{n}": rows[:, n] for n in (2, 1, 0)})
    pq.write_table(turned, tmp_path / "b.parquet")
    message = "b.parquet has 'x2' where a.parquet has 'x0'"
    with pytest.raises(DataError, match=message):
        open_rows(tmp_path)


def test_rows_in_a_folder_of_the_folder_are_not_left_out(tmp_path):
    np.save(tmp_path / "part-0.npy", expected_rows())
    (tmp_path / "notes").mkdir()
    assert len(open_rows(tmp_path)) == N_ROWS
    np.save(tmp_path / "notes" / "part-1.npy", expected_rows())
    with pytest.raises(DataError, match="has some in notes"):
        open_rows(tmp_path)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_shards_of_other_types_keep_their_numbers(tmp_path, order):
    halves = [np.array([[1, 2], [3, 4]], dtype=np.int64), np.array([[0.25, 0.5]])]
    for name, which in zip("ab", order, strict=True):
        columns = {f"x{n}": column for n, column in enumerate(halves[which].T)}
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    source = open_rows(tmp_path)
    expected = np.vstack([halves[which] for which in order])
    index = torch.tensor([2, 0, 1, 0])
    assert source.take(index).tolist() == expected[index].tolist()
    (block,) = source.blocks(5)
    assert block.rows.tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", ["int16", "float16", "bool"])
def test_numbers_that_single_precision_holds_become_float32(tmp_path, dtype):
    rows = (expected_rows() % 2).astype(dtype)
    write_columns(tmp_path / "rows.parquet", rows)
    source = open_rows(tmp_path / "rows.parquet")
    assert source.take(torch.arange(2)).dtype == torch.float32
    assert next(source.blocks(3)).rows.dtype == torch.float32


def test_the_index_of_a_pandas_table_is_no_feature(tmp_path):
    frame = pd.DataFrame(expected_rows(), columns=["a", "b", "c"])
    frame.index = pd.Index(np.arange(N_ROWS) + 10**6, name="id")
    frame.to_parquet(tmp_path / "rows.parquet")
    source = open_rows(tmp_path / "rows.parquet")
    assert source.feature_names == ("a", "b", "c")
    assert torch.equal(source.take(torch.arange(N_ROWS)), torch.tensor(frame.values))
    np.testing.assert_array_equal(read_array(tmp_path / "rows.parquet"), frame)


@pytest.mark.parametrize("order", ["abc", "cba"])
def test_shards_that_name_columns_after_one_that_does_not_agree(order, tmp_path):
    rows = np.arange(6.0).reshape(2, 3)
    np.save(tmp_path / "1.npy", rows)
    for name, columns in (("2", "abc"), ("3", order)):
        table = pd.DataFrame(rows, columns=[*columns])
        table.to_parquet(tmp_path / f"{name}.parquet")
    if order == "cba":
        with pytest.raises(DataError, match=r"3.parquet has 'c' where 2.parquet has"):
            open_rows(tmp_path)
    else:
        assert open_rows(tmp_path).feature_names == ("a", "b", "c")


@pytest.mark.parametrize("name", ["label", "Target"])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_column_that_may_hold_the_classes_is_warned_of(name, suffix, tmp_path):
    table = pd.DataFrame({"a": [1.0, 2.0], name: [0.0, 1.0]})
    path = tmp_path / f"rows.{suffix}"
    table.to_csv(path, index=False) if suffix == "csv" else table.to_parquet(path)
    with pytest.warns(DegenerateWarning, match=f"'{name}' is called as the true class"):
        assert open_rows(path).n_features == 2
