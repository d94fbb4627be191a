"""What a report is made of: sections of text, tables and charts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Table:
    """A table.

    rows [r, c]: numbers, text or None. best: (row, column) of highlighted cells. decimals: places
    shown of a number, or else three significant digits.
    """

    id: str
    title: str
    note: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    best: frozenset[tuple[int, int]] = frozenset()
    decimals: int | None = None


@dataclass(frozen=True)
class Series:
    """A series of a chart.

    x, y [n]: None is a gap. low, high [n]: intervals. slot: colour and symbol, to match a method
    across charts; by default its place in the chart.
    """

    name: str
    x: Sequence[Any]
    y: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    slot: int | None = None


@dataclass(frozen=True)
class Chart:
    """A chart.

    kind: bars (side by side), stack, lines, points, or boxes, whose y [5] are the 5th, 25th, 50th,
    75th and 95th percentile. levels: named horizontal lines.
    """

    id: str
    title: str
    note: str
    kind: Literal["bars", "stack", "lines", "points", "boxes"]
    x: str
    y: str
    series: Sequence[Series]
    levels: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Section:
    id: str
    title: str
    text: Sequence[str]
    blocks: Sequence[Table | Chart]


PERCENTILES = (5, 25, 50, 75, 95)


def as_table(chart: Chart) -> Table:
    """The figures of a chart for those who do not see it: all of them, of points their number and
    means."""
    title, note = f"{chart.title}: the figures", f"{chart.y} by {chart.x}"
    if chart.kind == "points":
        rows: list[Sequence[Any]] = [
            [s.name, len(s.y), _mean(s.x), _mean([y for y in s.y if y is not None])]
            for s in chart.series
        ]
        columns = ["series", "points", f"mean {chart.x}", f"mean {chart.y}"]
        return Table(f"{chart.id}-data", title, note, columns, rows)
    if chart.kind == "boxes":
        columns = ["series", *(f"{p}th percentile" for p in PERCENTILES)]
        return Table(
            f"{chart.id}-data", title, note, columns, [[s.name, *s.y] for s in chart.series]
        )
    columns = [chart.x, *(name for s in chart.series for name in _names(s))]
    places = list(dict.fromkeys(x for s in chart.series for x in s.x))
    values = [{x: _values(s, i) for i, x in enumerate(s.x)} for s in chart.series]
    rows = [
        [
            x,
            *(
                value
                for s, found in zip(chart.series, values, strict=True)
                for value in found.get(x, [None] * len(_names(s)))
            ),
        ]
        for x in places
    ]
    rows += [[name, level, *[None] * (len(columns) - 2)] for name, level in chart.levels.items()]
    return Table(f"{chart.id}-data", title, note, columns, rows)


def _names(series: Series) -> list[str]:
    if not series.low:
        return [series.name]
    return [series.name, f"{series.name}, low", f"{series.name}, high"]


def _values(series: Series, at: int) -> list[float | None]:
    if not series.low:
        return [series.y[at]]
    return [series.y[at], series.low[at], series.high[at]]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
