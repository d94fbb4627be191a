"""The `specadapt` command. Each command's module imports torch, Ray and the like when it runs."""

from importlib.util import find_spec

import typer

from ops.assign import assign
from ops.bench_balance import bench_balance
from ops.bench_decode import bench_decode
from ops.bench_geometry import bench_geometry
from ops.bench_http import bench_http
from ops.bench_learning import bench_learning
from ops.bench_load import bench_load
from ops.bench_router import bench_router
from ops.bench_step import bench_step
from ops.boundary import CommandGroup, show_help
from ops.chat import chat
from ops.evaluate import evaluate
from ops.export_encoder import export_encoder
from ops.fit import fit
from ops.generate import generate
from ops.methods import methods
from ops.plot import plot
from ops.profile import profile
from ops.route import route
from ops.serve import serve
from ops.tune_batch import tune_batch
from ops.tune_tree import tune_tree

app = typer.Typer(
    cls=CommandGroup,
    name="specadapt",
    help="Adaptive speculative decoding: each prompt goes to the method that finishes it soonest.",
    callback=show_help,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
bench = typer.Typer(
    help="Measure decoding, steps, routing, load, the served system, balance, and geometries.",
    callback=show_help,
    invoke_without_command=True,
)

for noun in (methods, generate, profile, fit, assign, evaluate, route, serve, chat, plot):
    app.command()(noun)
app.command("export-encoder")(export_encoder)
app.command("tune-tree")(tune_tree)
app.command("tune-batch")(tune_batch)
bench.command("decode")(bench_decode)
bench.command("router")(bench_router)
bench.command("http")(bench_http)
bench.command("load")(bench_load)
bench.command("learning")(bench_learning)
bench.command("balance")(bench_balance)
bench.command("step")(bench_step)
bench.command("geometry")(bench_geometry)
app.add_typer(bench, name="bench")

if find_spec("ops.train") is not None:
    from ops.train import train

    app.add_typer(train, name="train")


def main() -> None:
    """Entry point of the `specadapt` command."""
    app()
