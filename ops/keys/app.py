"""`specadapt keys`: API keys of a service."""

import typer

from ops.cli.boundary import show_help
from ops.keys.new import new

keys = typer.Typer(help="API keys of a service.", callback=show_help, invoke_without_command=True)
keys.command("new")(new)
