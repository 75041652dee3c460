"""Subspace clustering that learns a function instead of a matrix."""

from selfexpress.datasets.loading import load_dataset
from selfexpress.datasets.synthetic import make_subspaces
from selfexpress.estimators.ensc import EnSC
from selfexpress.estimators.esc import ESC
from selfexpress.estimators.gap import objective_gap
from selfexpress.estimators.senet import SENet
from selfexpress.estimators.ssc_omp import SSCOMP
from selfexpress.rows.opening import open_rows

__version__ = "0.1.0"

__all__ = [
    "ESC",
    "SSCOMP",
    "EnSC",
    "SENet",
    "__version__",
    "load_dataset",
    "make_subspaces",
    "objective_gap",
    "open_rows",
]
