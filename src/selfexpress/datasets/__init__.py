"""Named public data sets, and synthetic ones."""

from selfexpress.datasets.loading import (
    Dataset,
    SequenceDataset,
    available,
    fetch,
    load_dataset,
    locate,
)
from selfexpress.datasets.synthetic import Subspaces, make_subspaces

__all__ = [
    "Dataset",
    "SequenceDataset",
    "Subspaces",
    "available",
    "fetch",
    "load_dataset",
    "locate",
    "make_subspaces",
]
