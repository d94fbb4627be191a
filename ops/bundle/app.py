"""`specadapt bundle`: bundles out of models that others made."""

import typer

from ops.bundle.importing import import_model
from ops.cli.boundary import show_help

bundle = typer.Typer(
    help="Bundles out of models that others made.",
    callback=show_help,
    invoke_without_command=True,
)
bundle.command("import")(import_model)
