"""`specadapt bench load`: policies side by side under open-loop load, on replayed replicas."""

from pathlib import Path
from typing import Annotated

import typer

from ops import flags
from ops.boundary import InputError
from ops.output import emit, progress


def bench_load(
    profile: Annotated[Path, typer.Option("--profile", metavar="DIR", help="answers to replay")],
    bundle: flags.Bundle = None,
    routing: flags.Routing = None,
    config: flags.Config = None,
    methods: Annotated[
        str | None,
        typer.Option("--methods", metavar="A,B", help="[default: all that profile and table have]"),
    ] = None,
    replicas: Annotated[int, typer.Option("--replicas", min=1, help="per method")] = 3,
    shares: Annotated[
        str, typer.Option("--shares", metavar="X,Y", help="loads, as shares of capacity")
    ] = "0.2,0.4,0.6,0.8,1.0,1.2",
    requests: Annotated[int, typer.Option("--requests", min=20, help="per load")] = 1000,
    arrivals: Annotated[
        Path | None,
        typer.Option("--arrivals", metavar="FILE", help="a trace  [default: a Poisson process]"),
    ] = None,
    temperature: flags.Temperature = 0.0,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Simulate replicas that replay a profile, and compare routing with its rivals under load.

    No model runs: recorded answers come back at their recorded pace, on a simulated clock.

    Example: `specadapt bench load --profile runs/profile --replicas 3 --json load.json`
    """
    import numpy as np

    from ops.load_arrivals import poisson, trace
    from ops.load_experiment import Experiment
    from ops.load_report import figures_at, tables_of
    from ops.load_runs import capacity
    from ops.machine import describe_machine
    from ops.settings import load_config

    loads = _shares(shares)
    unit = poisson(requests, seed) if arrivals is None else trace(arrivals, requests)
    experiment = Experiment.load(
        load_config(config), profile, bundle, routing, methods, replicas, temperature
    )
    known = experiment.questions
    drawn = np.random.default_rng((seed, 1)).integers(0, len(known), requests)
    asked = [known[i] for i in drawn]
    most = capacity(experiment.site, known)
    results = []
    with progress() as bar:
        task = bar.add_task("runs", total=len(loads) * experiment.rivals)
        for share in loads:
            times = unit / (share * most)
            runs = experiment.runs(asked, times, seed, lambda: bar.advance(task))
            results.append(figures_at(share, share * most, times, runs, seed))
    figures = {
        "simulated": True,
        "capacity_requests_per_s": most,
        "loads": results,
        "settings": {
            **describe_machine(),
            **experiment.settings(),
            "requests": requests,
            "arrivals": "poisson" if arrivals is None else arrivals.name,
            "temperature": temperature,
            "seed": seed,
        },
    }
    emit(figures, lambda: tables_of(figures), json)


def _shares(listed: str) -> list[float]:
    try:
        loads = [float(share) for share in listed.split(",")]
    except ValueError:
        loads = []
    if not loads or min(loads) <= 0.0:
        raise InputError(f"--shares: numbers above 0, separated by commas, not {listed!r}")
    return loads
