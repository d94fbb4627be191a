"""`specadapt routing`: what a service has learned."""

import typer

from ops.cli.boundary import show_help
from ops.learned.promote import promote
from ops.learned.states import history, reset, rollback

routing = typer.Typer(
    help="What a service has learned: look back, go back, begin with it elsewhere.",
    callback=show_help,
    invoke_without_command=True,
)
routing.command("history")(history)
routing.command("rollback")(rollback)
routing.command("reset")(reset)
routing.command("promote")(promote)
