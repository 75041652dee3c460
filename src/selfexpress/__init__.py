"""Subspace clustering that learns a function instead of a matrix."""

from selfexpress.data.synthetic import make_subspaces
from selfexpress.estimators.senet import SENet

__version__ = "0.1.0"

__all__ = ["SENet", "__version__", "make_subspaces"]
