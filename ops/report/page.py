"""The report as one HTML file that needs nothing else: no network, no other file."""

import base64
import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ops.harness.output import cell
from ops.report.blocks import Chart, Section, Table, as_table

TEMPLATES = Path(__file__).parents[1] / "data"


def page(title: str, about: str, sections: Sequence[Section], pictures: Mapping[str, Path]) -> str:
    """Return the page's HTML.

    Numbers carry their full value in `data` elements. A chart is its picture and a table of its
    figures. pictures: a PNG file by the chart's id.
    """
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shown"] = shown
    environment.filters["data"] = as_table
    environment.filters["picture"] = lambda chart: _data_url(pictures[chart.id])
    environment.tests["chart"] = lambda block: isinstance(block, Chart)
    template = environment.get_template("report.html.j2")
    return template.render(title=title, about=about, sections=sections)


def shown(value: Any, table: Table) -> Markup:
    """Format a cell; a number keeps its full value as a tooltip."""
    if value is None:
        return Markup('<span aria-label="none">–</span>')
    if isinstance(value, float):
        text = cell(value) if table.decimals is None else f"{value:,.{table.decimals}f}"
        return Markup(f'<data value="{value!r}">{text}</data>')
    if isinstance(value, int):
        return Markup(f'<data value="{value}">{value:,}</data>')
    return Markup(html.escape(str(value)))


def _data_url(picture: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture.read_bytes()).decode()}"
