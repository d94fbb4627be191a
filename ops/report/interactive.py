"""Charts as plotly draws them in the page; what they mean in colour the page's style decides."""

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from ops.harness.plot_style import COLOURS, GREY
from ops.report.blocks import Chart, Series

SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up", "star", "x", "hexagon")
HEIGHT = 380


def plotly_figure(chart: Chart) -> go.Figure:
    """Transparent, without a title: the page has it as the figure's caption."""
    traces = [
        _trace(chart, series, at if series.slot is None else series.slot)
        for at, series in enumerate(chart.series)
    ]
    figure = go.Figure([*traces, *_levels(chart)])
    figure.update_layout(
        template="none",
        height=HEIGHT,
        margin={"l": 64, "r": 16, "t": 16, "b": 56},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        barmode="overlay" if chart.kind == "stack" else "group",
        showlegend=len(figure.data) > 1 and chart.kind != "boxes",
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0.0},
        xaxis={"title": {"text": chart.x}, **_axis(chart), "automargin": True},
        yaxis={"title": {"text": chart.y}, "automargin": True},
        font={"family": "inherit", "size": 13},
    )
    return figure


def _axis(chart: Chart) -> dict[str, Any]:
    numbers = chart.kind in ("lines", "points")
    return {"type": "linear" if numbers else "category", "showgrid": numbers}


def _trace(chart: Chart, series: Series, at: int) -> Any:
    colour, symbol = COLOURS[at % len(COLOURS)], SYMBOLS[at % len(SYMBOLS)]
    if chart.kind == "boxes":
        least, first, middle, third, most = ([value] for value in series.y)
        return go.Box(
            name=series.name,
            x=[series.name],
            lowerfence=least,
            q1=first,
            median=middle,
            q3=third,
            upperfence=most,
            marker={"color": colour},
        )
    common: dict[str, Any] = {"name": series.name, "x": list(series.x), "y": list(series.y)}
    if series.low:
        common["error_y"] = _error(series, colour if chart.kind == "lines" else GREY)
    if chart.kind in ("bars", "stack"):
        return go.Bar(**common, marker={"color": colour})
    marker = {"color": colour, "symbol": symbol, "size": 7}
    mode = "markers" if chart.kind == "points" else "lines+markers"
    shown = {"text": list(series.texts), "hoverinfo": "text+name"} if series.texts else {}
    return go.Scatter(**common, **shown, mode=mode, marker=marker)


def _error(series: Series, colour: str) -> dict[str, Any]:
    def apart(ends: Sequence[float | None]) -> list[float | None]:
        return [
            None if end is None or y is None else abs(end - y)
            for end, y in zip(ends, series.y, strict=True)
        ]

    return {
        "type": "data",
        "symmetric": False,
        "array": apart(series.high),
        "arrayminus": apart(series.low),
        "color": colour,
        "thickness": 1.5,
    }


def _levels(chart: Chart) -> list[Any]:
    """A line for each, over all that is on the x axis."""
    places = list(dict.fromkeys(x for series in chart.series for x in series.x))
    dashes = ("dash", "dot", "dashdot", "longdash")
    return [
        go.Scatter(
            name=name,
            x=places,
            y=[level] * len(places),
            mode="lines",
            line={"dash": dashes[at % len(dashes)], "color": COLOURS[(at + 5) % len(COLOURS)]},
        )
        for at, (name, level) in enumerate(chart.levels.items())
    ]
