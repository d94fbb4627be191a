"""The `specadapt` command. A command imports heavy libraries only when it runs."""

import os
import sys

import typer

from ops.bench.decode.command import bench_decode
from ops.bench.http.command import bench_http
from ops.bench.routed.command import bench_routed
from ops.harness.boundary import CommandGroup, show_help
from ops.load.loadtest.command import loadtest
from ops.models.bundle.importing import bundle
from ops.models.train.app import train
from ops.operate.chat import chat
from ops.operate.config import config
from ops.operate.datastore import datastore
from ops.operate.drafters import drafters
from ops.operate.generate import generate
from ops.operate.grafana import grafana
from ops.operate.keys import keys
from ops.operate.methods import methods
from ops.operate.routing import routing
from ops.operate.serve import serve
from ops.operate.vllm_server import vllm
from ops.report import report
from ops.simulate.command import simulate
from ops.tables.evaluate import evaluate
from ops.tables.export_encoder import export_encoder
from ops.tables.fit import fit
from ops.tables.profile import profile
from ops.tables.trace import trace

app = typer.Typer(
    cls=CommandGroup,
    name="specadapt",
    help="Serve LLMs with speculative decoding and route each prompt to its fastest method.",
    callback=show_help,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
bench = typer.Typer(
    help="Run benchmarks of decoding, routing and the service.",
    callback=show_help,
    invoke_without_command=True,
)

for noun in (
    methods,
    generate,
    trace,
    profile,
    fit,
    evaluate,
    simulate,
    serve,
    chat,
    loadtest,
    report,
):
    app.command()(noun)
app.command("export-encoder", hidden=True)(export_encoder)
bench.command("decode")(bench_decode)
bench.command("http")(bench_http)
bench.command("routed")(bench_routed)
app.add_typer(bench, name="bench")
app.add_typer(train, name="train")
app.add_typer(bundle, name="bundle")
app.add_typer(keys, name="keys")
app.add_typer(config, name="config")
app.add_typer(routing, name="routing")
app.add_typer(drafters, name="drafters")
app.add_typer(datastore, name="datastore")
app.add_typer(grafana, name="grafana")
app.add_typer(vllm, name="vllm")


def main() -> None:
    """Entry point of the `specadapt` command.

    Arguments, file names, files and output are UTF-8: under another locale Python starts again in
    its UTF-8 mode, which the processes that it starts inherit.
    """
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    app()


if __name__ == "__main__":
    main()
