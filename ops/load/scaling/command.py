"""`specadapt bench scaling`: autoscaling policies under a trace's arrivals."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ops.harness import flags
from ops.harness.output import emit, progress


def bench_scaling(
    profile: flags.Recording,
    trace: Annotated[
        Path,
        typer.Option("--trace", metavar="FILE", help="file of recorded arrivals, .csv or .jsonl"),
    ],
    bundle: flags.Bundle = None,
    routing: flags.Routing = None,
    config: flags.Config = None,
    methods: flags.RecordedMethods = None,
    policies: Annotated[
        str,
        typer.Option("--policies", metavar="A,B", help="autoscaling policies, run in this order"),
    ] = "follow_work,ongoing_2,ongoing_1,fixed",
    minutes: Annotated[
        float, typer.Option("--minutes", min=0.1, help="duration of arrivals in minutes")
    ] = 3.0,
    speed: Annotated[
        float | None,
        typer.Option(
            "--speed",
            min=0.1,
            help="factor by which the trace runs faster  [default: fit the whole trace]",
        ),
    ] = None,
    demand: Annotated[
        float, typer.Option("--demand", min=0.05, help="mean work, in replicas")
    ] = 2.0,
    gpus: Annotated[
        int, typer.Option("--gpus", min=1, help="number of GPUs to declare to Ray, one per replica")
    ] = 8,
    ttft_slo: flags.TtftSlo = None,
    tpot_slo: flags.TpotSlo = None,
    temperature: flags.Temperature = 0.0,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Compare autoscaling policies under a trace's arrivals; no model runs.

    Compares scaling by predicted work with Ray Serve's scaling by ongoing requests and with a fixed
    number of replicas. Ray Serve runs replicas that replay a profile on declared, not real, GPUs.
    Every policy gets the same prompts at the same times.

    Example: `specadapt bench scaling --config configs/scaling.yaml --profile runs/profile
    --trace arrivals.csv --speed 5 --ttft-slo 2 --json scaling.json`
    """
    from ops.harness.machine import describe_machine
    from ops.harness.settings import ServiceFlags, names, served_config
    from ops.load.loadtest.figures import Target, summary
    from ops.load.scaling.experiment import Arrivals, asked
    from ops.load.scaling.figures import demand_figures, replica_figures
    from ops.load.scaling.policies import check
    from ops.load.scaling.report import tables_of
    from ops.load.scaling.runs import REPORT_SECONDS, run_policy

    wanted = names(policies, "--policies")
    for policy in wanted:
        check(policy)
    seconds = minutes * 60.0
    given = ServiceFlags(served_config(config), bundle, routing, methods)
    ask = asked(given, profile, temperature, Arrivals(trace, seconds, speed), demand, seed)
    figures: dict[str, Any] = {
        "demand": demand_figures(ask.load.arrivals, ask.work, seconds),
        "policies": {},
    }
    with progress() as bar:
        for policy in wanted:
            task = bar.add_task(policy, total=len(ask.work))
            run = run_policy(ask.config, policy, gpus, ask.load, partial(bar.advance, task))
            figures["policies"][policy] = summary(
                run.answers, run.seconds, Target(ttft_slo, tpot_slo)
            ) | replica_figures(run.counts, run.seconds)
    scale = ask.config.shared if ask.config.layout == "shared" else ask.config.methods[0]
    figures["settings"] = {
        **describe_machine(),
        **ask.settings,
        "requests": len(ask.work),
        "trace": trace.name,
        "minutes": minutes,
        "speed": speed,
        "demand": demand,
        "gpus": gpus,
        "report_seconds": REPORT_SECONDS,
        **{
            name: getattr(scale, name)
            for name in (
                *("target_seconds", "spare_replicas"),
                *("upscale_delay_seconds", "downscale_delay_seconds"),
            )
        },
        "temperature": temperature,
        "seed": seed,
    }
    emit(figures, lambda: tables_of(figures), json)
