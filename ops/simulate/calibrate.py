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
            help="JSON of `specadapt loadtest`; repeatable, one with a pinned method and one "
            "routed, in the order in which one service answered them",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="file to write, for `simulate --overhead`")
    ],
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
    """Estimate what HTTP, routing and streaming add to the engines' time, from load tests.

    Also estimates the number of cores that the replicas share. Use the result to simulate other
    load tests than these.

    Example: `specadapt calibrate --traces T --served one.json --served two.json --out o.json`
    """
    from ops.harness.machine import describe_machine
    from ops.harness.settings import ServiceFlags, load_config
    from ops.simulate.calibration import calibrated
    from ops.simulate.costs import MEASURED
    from ops.simulate.experiment import Scenario, load_experiment
    from ops.simulate.policies import Fleet
    from ops.simulate.served import read_served

    experiment = load_experiment(
        ServiceFlags(load_config(config), bundle, routing, methods),
        traces,
        MEASURED,
        Scenario(temperature, max_tokens, learn=True),
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
