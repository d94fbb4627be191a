"""`specadapt grafana`: the service's dashboards."""

import typer

from ops.boards.commands import draw, export, push
from ops.cli.boundary import show_help

grafana = typer.Typer(
    help="The service's dashboards for Grafana.",
    callback=show_help,
    invoke_without_command=True,
)
grafana.command("export")(export)
grafana.command("push")(push)
grafana.command("draw")(draw)
