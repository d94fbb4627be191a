"""`specadapt bench load`: policies side by side under open-loop load, on replayed replicas."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ops.harness import flags
from ops.harness.boundary import InputError
from ops.harness.numbers import load_shares
from ops.harness.output import emit, progress

if TYPE_CHECKING:
    from ops.load.arrivals import Floats
    from ops.load.experiment import Experiment
    from ops.load.runs import Load, Runs


def bench_load(
    profile: flags.Recording,
    bundle: flags.Bundle = None,
    routing: flags.Routing = None,
    config: flags.Config = None,
    methods: flags.RecordedMethods = None,
    replicas: Annotated[int, typer.Option("--replicas", min=1, help="replicas per method")] = 3,
    shares: Annotated[
        str, typer.Option("--shares", metavar="X,Y", help="loads to test, as fractions of capacity")
    ] = "0.2,0.4,0.6,0.8,1.0,1.2",
    requests: Annotated[
        int, typer.Option("--requests", min=20, help="requests per load, in simulated time")
    ] = 1000,
    arrivals: Annotated[
        Path | None,
        typer.Option(
            "--arrivals",
            metavar="FILE",
            help="file of recorded arrivals  [default: a Poisson process]",
        ),
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="use Ray Serve over HTTP, in real time")
    ] = False,
    seconds: Annotated[
        float, typer.Option("--seconds", min=1.0, help="seconds of arrivals per load, with --serve")
    ] = 30.0,
    singles: Annotated[
        str | None,
        typer.Option(
            "--singles",
            metavar="A,B",
            help="methods to run alone on all replicas, with --serve  [default: the best by "
            "capacity and the fastest on idle replicas]",
        ),
    ] = None,
    temperature: flags.Temperature = 0.0,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Compare routing with other policies under open-loop load, on replicas that replay a profile.

    No model runs: recorded answers come back at their recorded speed, times
    `engine.replay_slowdown`. By default, replicas and time are simulated in this process. With
    --serve, Ray Serve runs the replicas and requests go over HTTP.

    Example: `specadapt bench load --profile runs/profile --replicas 3 --json load.json`
    """
    from ops.harness.machine import describe_machine
    from ops.harness.settings import ServiceFlags, load_config
    from ops.load.arrivals import poisson, trace
    from ops.load.experiment import Experiment
    from ops.load.report import figures_at, tables_of

    shares_of = load_shares(shares)
    recorded = None if arrivals is None else trace(arrivals, 20 if serve else requests)
    given = ServiceFlags(load_config(config), bundle, routing, methods)
    experiment = Experiment.load(given, profile, replicas, temperature)
    if serve:
        from ops.load.served import over_http

        experiment = over_http(experiment)
    most = experiment.capacity
    rates = [share * most for share in shares_of]
    counts = [max(20, round(rate * seconds)) if serve else requests for rate in rates]

    def times(count: int) -> "Floats":
        if arrivals is None or recorded is None:
            return poisson(count, seed)
        return recorded if len(recorded) == count else trace(arrivals, count)

    loads = [
        experiment.load_of(times(count) / rate, seed)
        for count, rate in zip(counts, rates, strict=True)
    ]
    if serve:
        found, more = _served(experiment, profile, loads, singles, seed)
    else:
        found, more = _simulated(experiment, loads, seed), {}
    figures = {
        "simulated": not serve,
        "capacity_requests_per_s": most,
        "bounds": experiment.bounds(),
        "loads": [
            figures_at(share, rate, load.arrivals, runs, seed)
            for share, rate, load, runs in zip(shares_of, rates, loads, found, strict=True)
        ],
        "settings": {
            **describe_machine(),
            **experiment.settings(),
            **more,
            "requests": counts,
            "arrivals": "poisson" if arrivals is None else arrivals.name,
            "temperature": temperature,
            "seed": seed,
        },
    }
    emit(figures, lambda: tables_of(figures), json)


def _simulated(experiment: "Experiment", loads: "Sequence[Load]", seed: int) -> "list[Runs]":
    with progress() as bar:
        task = bar.add_task("runs", total=len(loads) * experiment.rivals)
        return [experiment.runs(load, seed, lambda: bar.advance(task)) for load in loads]


def _served(
    experiment: "Experiment", profile: Path, loads: "Sequence[Load]", singles: str | None, seed: int
) -> "tuple[list[Runs], dict[str, object]]":
    from ops.harness.settings import names
    from ops.load.served import best_alone, policies_run, served_runs

    alone = best_alone(experiment) if singles is None else names(singles, "--singles")
    unknown = [m for m in alone if m not in experiment.table.methods]
    if unknown:
        served = ", ".join(experiment.table.methods)
        raise InputError(
            f"--singles: {', '.join(unknown)} is not served; available methods: {served}"
        )
    with progress() as bar:
        requests = sum(len(load.asked) for load in loads)
        task = bar.add_task("requests", total=requests * policies_run(alone))
        found = served_runs(experiment, profile, loads, alone, seed, lambda: bar.advance(task))
    return found, {"singles": list(alone)}
