"""The paper's experiments: methods by name."""

from selfexpress.experiments.methods import METHODS, make_method

__all__ = ["METHODS", "make_method"]
