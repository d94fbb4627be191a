"""`specadapt calibrate`: what a service adds to its engines' seconds, from load tests of it."""

from pathlib import Path
from typing import Annotated

import typer

from ops.harness import flags
from ops.harness.output import emit, table


def calibrate(
    served: Annotated[
        list[Path],
        typer.Option(
            "--served",
            metavar="FILE",
            help="of `specadapt loadtest`, may be repeated: one of a pinned method, one routed, "
            "in the order in which one service answered them",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="for `simulate --overhead`")],
    config: flags.Config = None,
    bundle: flags.Bundle = None,
    routing: flags.Routing = None,
    methods: flags.Methods = None,
    traces: flags.AcceptanceTraces = None,
    replicas: flags.Replicas = None,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    temperature: flags.Temperature = 0.0,
    json: flags.Json = None,
) -> None:
    """Find what HTTP, routing and streaming add to the engines of a service, and how many cores its
    replicas share, so that the simulation of its load tests comes closest.

    What is simulated with it later should be other load tests than these.

    Example: `specadapt calibrate --traces T --served one.json --served two.json --out o.json`
    """
    from ops.harness.machine import describe_machine
    from ops.harness.settings import load_config
    from ops.simulate.calibration import calibrated
    from ops.simulate.costs import MEASURED
    from ops.simulate.experiment import load_experiment
    from ops.simulate.policies import Fleet
    from ops.simulate.served import read_served

    experiment = load_experiment(
        *(load_config(config), bundle, routing, methods, traces, MEASURED, temperature),
        *(max_tokens, 0.0, (), 0),
        learn=True,
    )
    fleet = experiment.fleet if replicas is None else Fleet(replicas, experiment.fleet.shared)
    found = calibrated(experiment, fleet, [[read_served(file, experiment) for file in served]])
    out.write_text(found.overhead.model_dump_json(indent=1) + "\n", encoding="utf-8")
    overhead = found.overhead.model_dump()
    ratios = {file.name: one for file, one in zip(served, found.ratios, strict=True)}
    figures = {
        "overhead": overhead,
        "simulated_over_served": ratios,
        "settings": {**describe_machine(), **experiment.settings, "overhead": None},
    }
    names = list(found.ratios[0])
    tables = [
        table(f"What the service adds: {out}", ["", ""], [[k, v] for k, v in overhead.items()]),
        table("Simulated over served", ["", *names], [[f, *r.values()] for f, r in ratios.items()]),
    ]
    emit(figures, lambda: tables, json)
