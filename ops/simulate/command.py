"""`specadapt simulate`: the served system as discrete events."""

from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.console import Group

from ops.cli import flags
from ops.cli.output import emit, progress, table

USUAL_SHARE = 0.6
"""Of what the replicas can do, where no rate is given."""


def simulate(
    config: flags.Config = None,
    bundle: flags.Bundle = None,
    routing: flags.Routing = None,
    methods: flags.Methods = None,
    traces: flags.AcceptanceTraces = None,
    costs: flags.StepCosts = "measured",
    replicas: flags.Replicas = None,
    requests: Annotated[int, typer.Option("--requests", min=2, metavar="N")] = 10_000,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            min=1e-3,
            metavar="R",
            help="requests a second, mean  [default: 0.6 of what the replicas can do]",
        ),
    ] = None,
    trace: flags.Arrivals = None,
    policies: Annotated[
        str | None,
        typer.Option(
            "--policies",
            metavar="A,B",
            help="routed, static_table, least_loaded, random, only_METHOD  "
            "[default: routed, and each method alone]",
        ),
    ] = None,
    kill: Annotated[
        list[float] | None,
        typer.Option("--kill", min=0.0, metavar="S", help="then the busiest replica dies"),
    ] = None,
    start_seconds: flags.StartSeconds = 30.0,
    ttft_slo: flags.TtftSlo = None,
    tpot_slo: flags.TpotSlo = None,
    latency_slo: flags.LatencySlo = None,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    temperature: flags.Temperature = 0.0,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Simulate the service: its own routing, on replicas that take the seconds of a cost model.

    No model runs. Prompts and what each method gets accepted on them are those of `specadapt trace`
    (--traces), or else what the routing table knows of its clusters; steps take what the table
    measured, or with --costs what was published of a GPU.

    Example: `specadapt simulate --traces runs/trace --replicas 8 --rate 20 --json -`
    """
    from ops.cli.settings import load_config, names
    from ops.load.arrivals import poisson
    from ops.load.arrivals import trace as recorded
    from ops.load.policies import ONLY, ROUTED
    from ops.measure.machine import describe_machine
    from ops.simulate.experiment import load_experiment
    from ops.simulate.outcomes import Objectives
    from ops.simulate.policies import Fleet, check
    from ops.simulate.runs import Load, jobs_of, run

    experiment = load_experiment(
        *(load_config(config), bundle, routing, methods, traces, costs, temperature, max_tokens),
        *(start_seconds, tuple(kill or ()), seed),
    )
    served = experiment.methods
    fleet = experiment.fleet if replicas is None else Fleet(replicas, experiment.fleet.shared)
    wanted = [ROUTED, *(f"{ONLY}{m}" for m in served)] if policies is None else names(policies)
    check(wanted, served)
    limit = experiment.limit(fleet)
    mean = USUAL_SHARE * limit["requests_per_s"] if rate is None else rate
    unit = poisson(requests, seed) if trace is None else recorded(trace, requests)
    load = Load(unit / mean, experiment.world.workload.drawn(requests, seed))
    jobs = [job for name in wanted for job in jobs_of(name, fleet, served, load, seed)]
    with progress() as bar:
        task = bar.add_task("requests", total=requests * len(wanted))
        outcomes = run(experiment.world, jobs, lambda count: bar.advance(task, count))
    objectives = Objectives(ttft_slo, tpot_slo, latency_slo)
    by_policy = {name: found.figures(served, objectives) for name, found in outcomes.items()}
    figures = {
        **by_policy[wanted[0]],
        "policy": wanted[0],
        "limit": limit,
        "by_policy": by_policy,
        "settings": {
            **describe_machine(),
            **experiment.settings,
            "replicas": fleet.replicas,
            "rate": mean,
            "arrivals": "poisson" if trace is None else trace.name,
            "slo": {"ttft_s": ttft_slo, "tpot_s": tpot_slo, "latency_s": latency_slo},
        },
    }
    emit(figures, lambda: _tables(figures), json)


def _tables(figures: dict[str, Any]) -> Iterable[Group | str]:
    settings, limit = figures["settings"], figures["limit"]
    columns = {
        "mean s": "latency_mean_s",
        "p95 s": "latency_p95_s",
        "TTFT p95": "ttft_p95_s",
        "TPOT p95": "tpot_p95_s",
        "tokens/s": "tokens_per_s",
        "good": "good_share",
        "batch": "mean_batch",
        "busy": "busy_share",
        "refused": "refused",
    }
    yield table(
        f"Simulated: {figures['requests']} requests at {settings['rate']:.3g} a second on "
        f"{settings['replicas']} replicas ({settings['layout']})",
        ["policy", *columns],
        [
            [name, *(found.get(key) for key in columns.values())]
            for name, found in figures["by_policy"].items()
        ],
    )
    yield table(
        "Who answered",
        ["policy", *settings["methods"]],
        [
            [name, *(f"{found['shares'].get(m, 0.0):.0%}" for m in settings["methods"])]
            for name, found in figures["by_policy"].items()
            if found["answered"]
        ],
    )
    yield (
        f"No policy exceeds {limit['requests_per_s']:.3g} requests a second here, or goes below "
        f"{limit['latency_mean_s']:.3g} s on the mean."
    )
    yield f"Step costs: {settings['costs']['model']} ({settings['costs']['source']})."
