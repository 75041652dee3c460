"""Results as pictures; never runs anything."""

from selfexpress.report.plots import plot_coefficients, plot_history

__all__ = ["plot_coefficients", "plot_history"]
