"""What the dashboards' queries return, drawn from a Prometheus without a Grafana."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from ops.harness.boundary import InputError
from ops.harness.plot_style import COLOURS, figure
from ops.operate.dashboard_panels import Board, Graph, Query

POINTS = 120
PANEL = (5.5, 2.6)
"""Inches."""
LEGEND = 0.25
"""Of a panel's height, above the lines."""
NAMED = 8
"""Series that a legend has room for."""
CALL_SECONDS = 60.0


@dataclass(frozen=True)
class Series:
    """What a query found: moments in minutes before now (negative) and values there."""

    name: str
    minutes: Sequence[float]
    values: Sequence[float]


def draw(prometheus: str, board: Board, minutes: float, out: Path) -> Path:
    """A board over the last `minutes`, as `out`/UID.svg. Raises InputError."""
    file = out / f"{board.uid}.svg"
    rows = -(-len(board.graphs) // 2)
    with figure(file, rows, 2, size=(2 * PANEL[0], rows * PANEL[1])) as axes:
        panels: list[Any] = list(axes.flat)
        for panel, graph in zip(panels, board.graphs, strict=False):
            found = [s for query in graph.queries for s in series_of(prometheus, query, minutes)]
            for number, one in enumerate(found):
                colour = COLOURS[number % len(COLOURS)]
                label = one.name if number < NAMED else f"_{one.name}"  # unnamed in the legend
                panel.plot(one.minutes, one.values, color=colour, label=label)
            panel.set_title(_titled(graph), fontsize=10, loc="left")
            panel.set_xlim(-minutes, 0.0)
            if found:
                low, high = panel.get_ylim()
                panel.set_ylim(min(0.0, low), high + LEGEND * (high - min(0.0, low)))
                panel.legend(fontsize=7, ncols=4, loc="upper left", borderpad=0.0)
            else:
                panel.text(0.5, 0.5, "nothing", transform=panel.transAxes, ha="center")
        for panel in panels[len(board.graphs) :]:
            panel.set_axis_off()
        for panel in axes[-1]:
            panel.set_xlabel("minutes")
    return file


def series_of(prometheus: str, query: Query, minutes: float) -> list[Series]:
    """Query Prometheus' range API over the last `minutes`.

    Raises InputError if no Prometheus answers or if it refuses the query.
    """
    now = time.time()
    asked: dict[str, str | float] = {
        "query": query.expression,
        "start": now - 60.0 * minutes,
        "end": now,
        "step": 60.0 * minutes / POINTS,
    }
    try:
        answer = httpx.get(f"{prometheus}/api/v1/query_range", params=asked, timeout=CALL_SECONDS)
        body = answer.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise InputError(
            f"--prometheus: no Prometheus answers at {prometheus} ({error})"
        ) from error
    if body.get("status") != "success":
        raise InputError(f"--prometheus: {prometheus} refused a query: {body.get('error')}")
    return [_series(query, one, now) for one in body["data"]["result"]]


def _series(query: Query, found: dict[str, Any], now: float) -> Series:
    points = [((float(at) - now) / 60.0, float(value)) for at, value in found["values"]]
    labels = found["metric"]
    name = re.sub(r"\{\{(\w+)\}\}", lambda part: labels.get(part[1], ""), query.legend)
    return Series(name, *zip(*points, strict=True))


def _titled(graph: Graph) -> str:
    return graph.title if graph.unit == "short" else f"{graph.title} ({graph.unit})"
