"""How our plots look: legible on light and on dark pages, the same bytes for the same figures."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

GREY = "#7d7d7d"
"""Of equal contrast to white and to black."""

PIXELS_PER_INCH = 150
COLOURS = ("#2f86d1", "#d9702a", "#2a9d6f", "#b565c9", "#b8892f", "#5f8f9e", "#cf5c6e", "#8a8a8a")

STYLE: dict[Any, Any] = {
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.framealpha": 0.0,
    "text.color": GREY,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "axes.titlecolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "grid.color": GREY,
    "grid.alpha": 0.25,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 10,
    "svg.fonttype": "path",
    "svg.hashsalt": "specadapt",
}


@contextmanager
def figure(
    file: Path, rows: int, columns: int = 1, *, size: tuple[float, float], **grid: Any
) -> Iterator[NDArray[np.object_]]:
    """The axes [rows, columns] of a plot that is written to `file`, an SVG or a PNG, at the end;
    size in inches."""
    with mpl.rc_context(STYLE):
        drawn = Figure(figsize=size, layout="constrained")
        yield drawn.subplots(rows, columns, squeeze=False, **grid)
        file.parent.mkdir(parents=True, exist_ok=True)
        kind = file.suffix.removeprefix(".")
        dated = {"svg": {"Date": None}, "png": {"Software": None}}[kind]
        drawn.savefig(file, format=kind, dpi=PIXELS_PER_INCH, metadata=dated)


def colour_of(names: Sequence[str]) -> dict[str, str]:
    """A colour per name, in their order."""
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}


def logarithmic(axes: Axes) -> None:
    """A logarithmic y axis with plain numbers on it."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def common_legend(axes: Axes, columns: int) -> None:
    """One legend above all panels, of what these axes show."""
    handles, labels = axes.get_legend_handles_labels()
    drawn = axes.figure
    drawn.legend(handles, labels, loc="outside upper left", ncols=columns, fontsize=9)


def legend(axes: Axes, columns: int) -> None:
    """A legend above the axes."""
    axes.legend(
        loc="lower left", bbox_to_anchor=(0.0, 1.02), ncols=columns, fontsize=9, borderaxespad=0.0
    )
