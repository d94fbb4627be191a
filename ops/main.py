"""The `specadapt` command. A command imports heavy libraries only when it runs."""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version as installed_version
from typing import Annotated, Any

import typer

from ops.bench.decode.command import bench_decode
from ops.bench.plot import bench_plot
from ops.bench.serve import bench_serve
from ops.common import flags
from ops.common.boundary import CommandGroup
from ops.models.bundle.importing import import_model
from ops.models.train import app as train
from ops.operate import config, datastore, drafters, grafana, keys, routing, vllm_server
from ops.operate.chat import chat
from ops.operate.doctor import doctor
from ops.operate.methods import generate, methods
from ops.operate.serve import serve
from ops.report.command import report
from ops.routing_tables import tables
from ops.routing_tables.trace import trace
from ops.simulate.command import simulate

COMMANDS: tuple[Callable[..., Any], ...] = (
    *(serve, chat, generate, methods, doctor),
    *(tables.tune, tables.profile, tables.fit, tables.evaluate, trace, simulate, report),
)
GROUPS: Mapping[str, tuple[str, Mapping[str, Callable[..., None]]]] = {
    "bench": (
        "Run benchmarks of decoding and of the service.",
        {"decode": bench_decode, "serve": bench_serve, "plot": bench_plot},
    ),
    "train": ("Train heads for a target on its own answers.", train.COMMANDS),
    "bundle": ("Import third-party models.", {"import": import_model}),
    "keys": ("Manage API keys of a service.", {"create": keys.create}),
    "config": (
        "Check and show configurations.",
        {"validate": config.validate, "show": config.show},
    ),
    "routing": (
        "Explain decisions; list, restore and export what a service has learned.",
        {
            "explain": routing.explain,
            "history": routing.history,
            "rollback": routing.rollback,
            "reset": routing.reset,
            "export": routing.export,
        },
    ),
    "drafters": (
        "List, promote and roll back the heads that a service trains, train one now, and "
        "erase answers.",
        {
            "list": drafters.listing,
            "promote": drafters.promote,
            "rollback": drafters.rollback,
            "train": drafters.train,
            "pause": drafters.pause,
            "resume": drafters.resume,
            "samples": drafters.samples,
        },
    ),
    "datastore": ("Index own texts for look-ups.", {"build": datastore.build}),
    "grafana": ("Upload the service's Grafana dashboards.", {"push": grafana.push}),
    "vllm": ("Run vLLM's own server with several drafters.", {}),
}


def show_help(context: typer.Context) -> None:
    """Print a group's help if no command is given."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def start(
    context: typer.Context,
    version: Annotated[bool, flags.option("--version", "print the version and exit")] = False,
) -> None:
    """Serve LLMs with speculative decoding and route each prompt to its fastest method."""
    if version:
        typer.echo(f"specadapt {installed_version('specadapt')}")
        raise typer.Exit
    show_help(context)


app = typer.Typer(
    cls=CommandGroup,
    name="specadapt",
    callback=start,
    invoke_without_command=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
for command in COMMANDS:
    app.command()(command)
app.command("export-encoder", hidden=True)(tables.export_encoder)
for name, (summary, members) in GROUPS.items():
    group = typer.Typer(help=summary, callback=show_help, invoke_without_command=True)
    for member, command in members.items():
        group.command(member)(command)
    if name == "vllm":  # further flags are vLLM's
        group.command("serve", context_settings=vllm_server.FURTHER_FLAGS)(vllm_server.serve)
    app.add_typer(group, name=name)


def main() -> None:
    """Entry point of the `specadapt` command.

    Arguments, file names, files and output are UTF-8: under another locale Python starts again in
    its UTF-8 mode, which the processes that it starts inherit.
    """
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    # Python would end at once and leave behind what the command has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    app()


if __name__ == "__main__":
    main()
