"""The report as one HTML file that needs nothing else: no network, no other file."""

import base64
import html
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from ops.harness.output import cell
from ops.report.blocks import Chart, Section, Table, as_table
from ops.report.interactive import plotly_figure

TEMPLATES = Path(__file__).parents[1] / "data"


def page(
    title: str,
    about: str,
    sections: Sequence[Section],
    pictures: Mapping[str, Path] | None = None,
) -> str:
    """The file's text. Figures carry their full value in `data` elements, charts theirs as JSON
    and once more as a table. pictures: by chart's id a PNG that stands for it, so that the file has
    no script and is as small as they are."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shown"] = shown
    environment.filters["plotly"] = _json
    environment.filters["data"] = as_table
    environment.filters["picture"] = lambda chart: _data_url((pictures or {})[chart.id])
    environment.tests["chart"] = lambda block: isinstance(block, Chart)
    template = environment.get_template("report.html.j2")
    return template.render(
        title=title,
        about=about,
        sections=sections,
        plotly=Markup(get_plotlyjs()) if pictures is None else None,
        drawn_by=f"plotly {version('plotly')}" if pictures is None else "matplotlib",
    )


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


def _json(chart: Chart) -> Markup:
    # `</script` or `<!--` in a prompt's text would end the element that holds this.
    return Markup(plotly_figure(chart).to_json().replace("<", "\\u003c"))
