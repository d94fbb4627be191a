"""What a dashboard is put together from: queries, panels, and the page around them."""

from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import common, dashboard, prometheus, timeseries
from grafana_foundation_sdk.models.common import (
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import Dashboard, DataSourceRef

DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
WIDTH, HEIGHT = 12, 8
"""Of a panel, in Grafana's units; a page is 24 wide."""


@dataclass(frozen=True)
class Query:
    """A PromQL expression, and what a series of it is called: labels in double braces."""

    expression: str
    legend: str


@dataclass(frozen=True)
class Graph:
    """A graph over time.

    unit: Grafana's name of a unit, such as `s`. text: the panel's description.
    """

    title: str
    unit: str
    text: str
    queries: tuple[Query, ...]


@dataclass(frozen=True)
class Board:
    """A page of graphs, two side by side. uid: the same for ever, so that a push replaces it."""

    uid: str
    title: str
    graphs: tuple[Graph, ...]

    def built(self) -> Dashboard:
        """As Grafana's API takes it."""
        page = (
            dashboard.Dashboard(f"SpecAdapt: {self.title}")
            .uid(self.uid)
            .tags(["specadapt"])
            .time("now-1h", "now")
            .refresh("30s")
            .with_variable(
                dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
            )
        )
        for graph in self.graphs:
            page = page.with_panel(_panel(graph))
        return page.build()


def quantile(share: float, metric: str, labels: Sequence[str] = ("method",)) -> str:
    """The expression of a quantile of a histogram of ours, over five minutes."""
    by = ", ".join(("le", *labels))
    return f"histogram_quantile({share}, sum by ({by}) (rate({metric}_bucket[5m])))"


def _panel(graph: Graph) -> timeseries.Panel:
    panel = (
        timeseries.Panel()
        .title(graph.title)
        .description(graph.text)
        .unit(graph.unit)
        .span(WIDTH)
        .height(HEIGHT)
        .datasource(DATASOURCE)
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(
            common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING)
        )
    )
    for index, query in enumerate(graph.queries):
        panel = panel.with_target(
            prometheus.Dataquery()
            .expr(query.expression)
            .legend_format(query.legend)
            .ref_id(chr(ord("A") + index))
        )
    return panel
