"""Rows and labels: sources read in blocks, files by suffix, synthetic and real data."""

from selfexpress.data.datasets import (
    Dataset,
    SequenceDataset,
    available,
    fetch,
    load,
    locate,
)
from selfexpress.data.files import (
    read_array,
    read_csr,
    read_labels,
    write_array,
    write_csr,
    write_labels,
)
from selfexpress.data.opening import open_rows
from selfexpress.data.prefetch import Prefetched
from selfexpress.data.shards import Shards
from selfexpress.data.sources import (
    ArraySource,
    MappedSource,
    RowBlock,
    RowSource,
    UnitRows,
)
from selfexpress.data.synthetic import Subspaces, make_subspaces

__all__ = [
    "ArraySource",
    "Dataset",
    "MappedSource",
    "Prefetched",
    "RowBlock",
    "RowSource",
    "SequenceDataset",
    "Shards",
    "Subspaces",
    "UnitRows",
    "available",
    "fetch",
    "load",
    "locate",
    "make_subspaces",
    "open_rows",
    "read_array",
    "read_csr",
    "read_labels",
    "write_array",
    "write_csr",
    "write_labels",
]
