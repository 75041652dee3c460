"""The paper's experiments: methods by name."""

from reproduction.methods import METHODS, make_method

__all__ = ["METHODS", "make_method"]
