"""`specadapt simulate`: the served system as discrete events."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group

from ops.harness import flags
from ops.harness.boundary import InputError
from ops.harness.output import emit, progress, table

USUAL_SHARE = 0.6
"""Default load, as a share of capacity."""


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
            help="mean arrival rate, requests per second  [default: 0.6 of capacity]",
        ),
    ] = None,
    trace: flags.Arrivals = None,
    served: Annotated[
        Path | None,
        typer.Option(
            "--served",
            metavar="FILE",
            help="JSON of `specadapt loadtest` to simulate and compare with",
        ),
    ] = None,
    policies: Annotated[
        str | None,
        typer.Option(
            "--policies",
            metavar="A,B",
            help="routed, static_table, least_loaded, random and only_METHOD  [default: routed, "
            "and each method alone]",
        ),
    ] = None,
    kill: Annotated[
        list[float] | None,
        typer.Option(
            "--kill",
            min=0.0,
            metavar="S",
            help="second at which the busiest replica dies; repeatable",
        ),
    ] = None,
    turns: Annotated[
        int, typer.Option("--turns", min=1, metavar="N", help="turns of every conversation")
    ] = 1,
    report_prefixes: Annotated[
        bool,
        typer.Option(
            "--report-prefixes/--no-report-prefixes",
            help="let replicas report which conversations their caches hold, as when they serve",
        ),
    ] = True,
    deadline: Annotated[
        float | None,
        typer.Option(
            "--deadline",
            min=0.01,
            metavar="S",
            help="deadline of every request, in seconds; routing knows it",
        ),
    ] = None,
    patience: Annotated[
        float | None,
        typer.Option(
            "--patience",
            min=0.01,
            metavar="S",
            help="seconds after which clients leave that have no complete answer",
        ),
    ] = None,
    start_seconds: flags.StartSeconds = 30.0,
    overhead: flags.ServiceOverhead = None,
    learn: Annotated[
        bool,
        typer.Option(
            "--learn/--no-learn", help="let routing learn from the answers, as when it serves"
        ),
    ] = True,
    ttft_slo: flags.TtftSlo = None,
    tpot_slo: flags.TpotSlo = None,
    latency_slo: flags.LatencySlo = None,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    temperature: flags.Temperature = 0.0,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Simulate the service: its own routing on replicas that take the time of a cost model.

    No model runs. Prompts and acceptance come from `specadapt trace` (--traces), or else from the
    routing table's clusters. Step times are the table's, or published ones of a GPU (--costs).

    Example: `specadapt simulate --traces runs/trace --replicas 8 --rate 20 --json -`
    """
    from ops.harness.machine import describe_machine
    from ops.harness.settings import ServiceFlags, load_config, names
    from ops.load.arrivals import poisson
    from ops.load.arrivals import trace as recorded
    from ops.load.policies import ONLY, ROUTED
    from ops.simulate.experiment import Scenario, load_experiment
    from ops.simulate.outcomes import Objectives
    from ops.simulate.overhead import read_overhead
    from ops.simulate.policies import Fleet, check
    from ops.simulate.runs import Load, jobs_of, run
    from ops.simulate.served import WITHIN, compared, read_served, within

    scenario = Scenario(
        *(temperature, max_tokens, seed, start_seconds, tuple(kill or ())),
        *(read_overhead(overhead), learn, turns, report_prefixes),
        deadline=deadline,
        patience=patience,
    )
    given = ServiceFlags(load_config(config), bundle, routing, methods)
    experiment = load_experiment(given, traces, costs, scenario)
    methods_served = experiment.methods
    if served is not None and turns > 1:
        raise InputError("--turns: the load test says what is asked; leave out one of the two")
    asked = None if served is None else read_served(served, experiment)
    fleet = experiment.fleet if replicas is None else Fleet(replicas, experiment.fleet.shared)
    if asked is not None:
        wanted = [asked.policy]
    elif policies is None:
        wanted = [ROUTED, *(f"{ONLY}{m}" for m in methods_served)]
    else:
        wanted = names(policies)
    check(wanted, methods_served)
    limit = experiment.limit(fleet)
    mean = USUAL_SHARE * limit["requests_per_s"] if rate is None else rate
    if asked is None:
        begun = -(-requests // turns)
        unit = poisson(begun, seed) if trace is None else recorded(trace, begun)
        load = Load(unit * turns / mean, experiment.world.workload.drawn(begun, seed))
    else:
        load = asked.load
    count = len(load.arrivals)
    jobs = [job for name in wanted for job in jobs_of(name, fleet, methods_served, load, seed)]
    with progress() as bar:
        task = bar.add_task("requests", total=count * len(wanted))
        outcomes = run(experiment.world, jobs, lambda done: bar.advance(task, done))
    objectives = Objectives(ttft_slo, tpot_slo, latency_slo)
    by_policy = {
        name: found.figures(methods_served, objectives) for name, found in outcomes.items()
    }
    figures = {
        **by_policy[wanted[0]],
        "policy": wanted[0],
        "limit": limit,
        "by_policy": by_policy,
        "settings": {
            **describe_machine(),
            **experiment.settings,
            "replicas": fleet.replicas,
            "rate": count / float(load.arrivals[-1]) if asked else mean,
            "arrivals": file.name if (file := served or trace) else "poisson",
            "slo": {"ttft_s": ttft_slo, "tpot_s": tpot_slo, "latency_s": latency_slo},
        },
    }
    if asked is not None:
        found = compared(asked, by_policy[asked.policy])
        figures |= {"served": found, "within": {"share": WITHIN, "is": within(found)}}
    emit(figures, lambda: _tables(figures), json)


def _tables(figures: dict[str, Any]) -> Iterable[Group | str]:
    from ops.simulate.served import JUDGED, WITHIN

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
    if settings["deadline"] or settings["patience"]:
        columns["cut off"] = "cut_off"
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
    if settings["turns"] > 1:
        yield table(
            "Mean seconds to the first token, by turn",
            ["policy", *map(str, range(1, settings["turns"] + 1))],
            [
                [name, *found["ttft_by_turn_s"]]
                for name, found in figures["by_policy"].items()
                if found["answered"]
            ],
        )
    if "served" in figures:
        yield table(
            "Compared with the service",
            ["", "served", "simulated", "over served"],
            [[name, *found.values()] for name, found in figures["served"].items()],
        )
        verdict = "Within" if figures["within"]["is"] else "Not within"
        yield f"{verdict} {WITHIN:.0%} of the service: {', '.join(JUDGED)}."
    yield (
        f"No policy exceeds {limit['requests_per_s']:.3g} requests a second here, or goes below "
        f"{limit['latency_mean_s']:.3g} s on the mean."
    )
    yield f"Step costs: {settings['costs']['model']} ({settings['costs']['source']})."
