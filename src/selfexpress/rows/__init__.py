"""Where rows come from, block by block: arrays, memory maps, data sets, shards."""

from selfexpress.rows.opening import open_rows
from selfexpress.rows.prefetch import Prefetched
from selfexpress.rows.shards import Shards
from selfexpress.rows.sources import (
    ArraySource,
    MappedSource,
    RowBlock,
    RowSource,
    UnitRows,
)

__all__ = [
    "ArraySource",
    "MappedSource",
    "Prefetched",
    "RowBlock",
    "RowSource",
    "Shards",
    "UnitRows",
    "open_rows",
]
