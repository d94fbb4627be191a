"""`specadapt config`: configurations read as the service reads them."""

import typer

from ops.cli.boundary import show_help
from ops.config.compare import diff
from ops.config.display import show
from ops.config.validation import validate

config = typer.Typer(
    help="Configurations, read as the service reads them.",
    callback=show_help,
    invoke_without_command=True,
)
config.command("validate")(validate)
config.command("show")(show)
config.command("diff")(diff)
