"""Figures of experiments as small PNG files: curves on several axes, and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Points a PNG's inch has; small files matter more than print.
_DPI = 80
_PANEL_SIZE = (3.6, 2.7)
_PICTURE_SIZE = (2.2, 2.4)


class LineLike(Protocol):
    """A curve; ``spread`` is empty or as long as ``y``."""

    @property
    def name(self) -> str:
        """Shown in the legend."""
        ...

    @property
    def x(self) -> Sequence[float]:
        """Places."""
        ...

    @property
    def y(self) -> Sequence[float]:
        """Values."""
        ...

    @property
    def spread(self) -> Sequence[float]:
        """Half-width of the band around y."""
        ...


class PanelLike(Protocol):
    """Curves on common axes."""

    @property
    def title(self) -> str:
        """Above the axes."""
        ...

    @property
    def x_label(self) -> str:
        """Below them."""
        ...

    @property
    def y_label(self) -> str:
        """Beside them."""
        ...

    @property
    def lines(self) -> Sequence[LineLike]:
        """Drawn in this order."""
        ...

    @property
    def log_x(self) -> bool:
        """Whether x is logarithmic."""
        ...

    @property
    def log_y(self) -> bool:
        """Whether y is logarithmic."""
        ...


def save_panels(path: Path, panels: Sequence[PanelLike], *, n_columns: int = 3) -> None:
    """Draw curves, a panel each, and write them as a PNG.

    Parameters
    ----------
    path : Path
    panels : sequence of panels
        With ``lines``, labels and whether axes are logarithmic.
    n_columns : int
        Panels in a row.
    """
    figure, grid = _grid(len(panels), n_columns, _PANEL_SIZE)
    for axes, panel in zip(grid, panels, strict=False):
        _draw(axes, panel)
    figure.savefig(path, dpi=_DPI)


def save_pictures(
    path: Path,
    pictures: Sequence[tuple[str, NDArray[np.uint8]]],
    *,
    n_columns: int = 3,
) -> None:
    """Draw grey-level pictures with captions and write them as a PNG.

    Parameters
    ----------
    path : Path
    pictures : sequence of (caption, pixels)
    n_columns : int
        Pictures in a row.
    """
    figure, grid = _grid(len(pictures), n_columns, _PICTURE_SIZE)
    for axes, (caption, pixels) in zip(grid, pictures, strict=False):
        axes.imshow(pixels, cmap="magma", vmin=0, vmax=255, interpolation="nearest")
        axes.set_title(caption, fontsize=8)
        axes.set_axis_off()
    figure.savefig(path, dpi=_DPI)


def _grid(
    n_panels: int, n_columns: int, size: tuple[float, float]
) -> tuple[Figure, list[Axes]]:
    """Return a figure without a window and its axes, the unused ones hidden."""
    from matplotlib.figure import Figure

    n_columns = max(1, min(n_columns, n_panels))
    n_rows = max(1, -(-n_panels // n_columns))
    figure = Figure(
        figsize=(size[0] * n_columns, size[1] * n_rows), layout="constrained"
    )
    grid = list(figure.subplots(n_rows, n_columns, squeeze=False).ravel())
    for axes in grid[n_panels:]:
        axes.set_axis_off()
    return figure, grid


def _draw(axes: Axes, panel: PanelLike) -> None:
    for line in panel.lines:
        x, y = np.asarray(line.x), np.asarray(line.y)
        marker = "o" if len(x) <= 25 else None
        (drawn,) = axes.plot(x, y, label=line.name, marker=marker, markersize=3)
        if len(line.spread):
            spread = np.asarray(line.spread)
            color = drawn.get_color()
            axes.fill_between(x, y - spread, y + spread, color=color, alpha=0.2)
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
    axes.set_title(panel.title, fontsize=9)
    if panel.log_x:
        _set_log_x(axes)
    else:
        axes.locator_params(axis="x", nbins=4)
    axes.xaxis.set_major_formatter("{x:,.12g}")
    if panel.log_y:
        axes.set_yscale("log")
    if panel.lines:
        axes.legend(fontsize=7, framealpha=0.5)  # what lies behind stays visible
    axes.grid(alpha=0.3)


def _set_log_x(axes: Axes) -> None:
    """Make x logarithmic, with few numbers."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_xscale("log")
    first, last = axes.get_xlim()
    parts = (1, 2, 5) if last < 100 * first else (1,)
    axes.xaxis.set_major_locator(LogLocator(subs=parts))
    axes.xaxis.set_minor_locator(NullLocator())
