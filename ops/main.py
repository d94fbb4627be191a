"""The `specadapt` command. Each command's module imports torch, Ray and the like when it runs."""

import os
import sys

import typer

from ops.boards.app import grafana
from ops.bounds.bench import bench_bounds
from ops.bundle.app import bundle
from ops.chaos.bench import bench_chaos
from ops.cli.boundary import CommandGroup, show_help
from ops.commands.chat import chat
from ops.commands.export_encoder import export_encoder
from ops.commands.generate import generate
from ops.commands.methods import methods
from ops.commands.plot import plot
from ops.commands.route import route
from ops.commands.serve import serve
from ops.config.app import config
from ops.decode.bench import bench_decode
from ops.gpu.bench import bench_gpu
from ops.http.bench import bench_http
from ops.keys.app import keys
from ops.learned.app import routing
from ops.learning.bench import bench_learning
from ops.load.bench import bench_load
from ops.loadtest.command import loadtest
from ops.quality.bench import bench_quality
from ops.report.command import report
from ops.routed.bench import bench_routed
from ops.routing.assign import assign
from ops.routing.bench import bench_router
from ops.routing.evaluate import evaluate
from ops.routing.extend import extend
from ops.routing.fit import fit
from ops.routing.profile import profile
from ops.routing.retime import retime
from ops.scaling.bench import bench_scaling
from ops.simulate.calibrate import calibrate
from ops.simulate.command import simulate
from ops.simulate.plan import plan
from ops.simulated.bench import bench_simulated
from ops.soak.bench import bench_soak
from ops.stages.bench import bench_stages
from ops.step.bench import bench_step
from ops.trace.trace import trace
from ops.train.app import train
from ops.tune.batch import tune_batch
from ops.tune.tree import tune_tree

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
    help="Measure decoding, steps, routing, load, scaling, faults and the service.",
    callback=show_help,
    invoke_without_command=True,
)

for noun in (
    methods,
    generate,
    trace,
    profile,
    extend,
    retime,
    fit,
    assign,
    evaluate,
    route,
    serve,
    chat,
    loadtest,
    simulate,
    calibrate,
    plan,
    plot,
    report,
):
    app.command()(noun)
app.command("export-encoder")(export_encoder)
app.command("tune-tree")(tune_tree)
app.command("tune-batch")(tune_batch)
bench.command("decode")(bench_decode)
bench.command("router")(bench_router)
bench.command("quality")(bench_quality)
bench.command("http")(bench_http)
bench.command("routed")(bench_routed)
bench.command("load")(bench_load)
bench.command("learning")(bench_learning)
bench.command("scaling")(bench_scaling)
bench.command("simulated")(bench_simulated)
bench.command("chaos")(bench_chaos)
bench.command("soak")(bench_soak)
bench.command("bounds")(bench_bounds)
bench.command("step")(bench_step)
bench.command("stages")(bench_stages)
bench.command("gpu")(bench_gpu)
app.add_typer(bench, name="bench")
app.add_typer(train, name="train")
app.add_typer(bundle, name="bundle")
app.add_typer(keys, name="keys")
app.add_typer(config, name="config")
app.add_typer(routing, name="routing")
app.add_typer(grafana, name="grafana")


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
