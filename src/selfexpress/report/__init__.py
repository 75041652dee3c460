"""Results as pictures, tables and one HTML page; never runs anything."""

from selfexpress.report.page import write_report
from selfexpress.report.plots import (
    plot_coefficients,
    plot_confusion,
    plot_embedding,
    plot_history,
)
from selfexpress.report.record import Run
from selfexpress.report.run_files import read_run
from selfexpress.report.saving import recorded_warnings, save_run

__all__ = [
    "Run",
    "plot_coefficients",
    "plot_confusion",
    "plot_embedding",
    "plot_history",
    "read_run",
    "recorded_warnings",
    "save_run",
    "write_report",
]
