"""Charts as PNG files, drawn by matplotlib: they need no browser."""

from pathlib import Path
from typing import Any

import numpy as np

from ops.harness.plot_style import COLOURS, GREY, figure
from ops.report.blocks import Chart, Series

MARKERS = ("o", "s", "D", "P", "^", "*", "X", "h")
DASHES = ("--", ":", "-.", (0, (8, 3)))
SIZE = (8.5, 4.2)
ENTRIES_A_ROW = 3


def draw(chart: Chart, out: Path) -> Path:
    """The file written: the chart's id with .png."""
    file = out / f"{chart.id}.png"
    with figure(file, 1, 1, size=SIZE) as panels:
        axes = panels[0][0]
        places = list(dict.fromkeys(x for series in chart.series for x in series.x))
        for at, series in enumerate(chart.series):
            _draw(axes, chart, series, at, places)
        for at, (name, level) in enumerate(chart.levels.items()):
            axes.axhline(
                level, label=name, color=GREY, linestyle=DASHES[at % len(DASHES)], linewidth=1.2
            )
        if chart.kind in ("bars", "stack"):
            axes.set_xticks(range(len(places)), [str(place) for place in places])
        axes.set(xlabel=chart.x, ylabel=chart.y)
        axes.set_title(chart.title, loc="left", fontsize=10)
        if chart.kind != "boxes" and len(chart.series) + len(chart.levels) > 1:
            axes.get_figure().legend(
                *axes.get_legend_handles_labels(),
                loc="outside lower left",
                ncols=ENTRIES_A_ROW,
                fontsize=8,
            )
    return file


def _draw(axes: Any, chart: Chart, series: Series, at: int, places: list[Any]) -> None:
    slot = at if series.slot is None else series.slot
    colour, marker = COLOURS[slot % len(COLOURS)], MARKERS[slot % len(MARKERS)]
    if chart.kind == "boxes":
        names = ("whislo", "q1", "med", "q3", "whishi")
        box = dict(zip(names, series.y, strict=True)) | {"label": series.name}
        parts = ("boxprops", "whiskerprops", "capprops", "medianprops")
        coloured = {part: {"color": colour} for part in parts}
        axes.bxp([box], positions=[at], showfliers=False, **coloured)
        return
    y = np.asarray([np.nan if value is None else value for value in series.y], dtype=float)
    bars = chart.kind in ("bars", "stack")
    x: Any = list(series.x)
    if bars:
        beside = chart.kind == "bars"
        width = 0.8 / len(chart.series) if beside else 0.8
        shift = (at + 0.5) * width - 0.4 if beside else 0.0
        x = np.asarray([places.index(place) for place in series.x]) + shift
        axes.bar(x, y, width, color=colour, label=series.name)
    elif chart.kind == "points":
        axes.scatter(x, y, s=14, color=colour, marker=marker, label=series.name)
    else:
        axes.plot(x, y, color=colour, marker=marker, markersize=4, label=series.name)
    if series.low:
        ends = np.asarray([series.low, series.high], dtype=float)
        apart = np.abs(ends - y)
        axes.errorbar(x, y, apart, fmt="none", ecolor=GREY, elinewidth=1.0, capsize=2.0)
