"""`specadapt bench learning`: compare learned routing with the fitted table."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ops.harness import flags
from ops.harness.boundary import InputError
from ops.harness.output import emit, progress

SCENARIOS = "steady,slower,killed,new_kind"


def bench_learning(
    profile: flags.Recording,
    bundle: flags.Bundle = None,
    routing: flags.Routing = None,
    config: flags.Config = None,
    methods: flags.RecordedMethods = None,
    replicas: Annotated[int, typer.Option("--replicas", min=1, help="replicas per method")] = 2,
    scenarios: Annotated[
        str, typer.Option("--scenarios", metavar="A,B", help="scenarios to run")
    ] = SCENARIOS,
    pairs: Annotated[int, typer.Option("--pairs", min=2, help="pairs of requests per phase")] = 300,
    share: Annotated[
        float, typer.Option("--share", min=0.01, help="load as a fraction of capacity")
    ] = 0.4,
    slowdown: Annotated[
        float | None,
        typer.Option(
            "--slowdown",
            min=1.0,
            help="factor on recorded seconds  [default: engine.replay_slowdown]",
        ),
    ] = None,
    new: Annotated[
        str,
        typer.Option(
            "--new", metavar="A,B", help="domains that are left out of the table for new_kind"
        ),
    ] = "edit,tool_use",
    fitted_on: Annotated[
        Path | None,
        typer.Option(
            "--fitted-on",
            metavar="DIR",
            help="folder of the profile that new_kind fits its table on",
        ),
    ] = None,
    clusters: Annotated[
        int, typer.Option("--clusters", min=2, help="number of clusters of new_kind's table")
    ] = 8,
    temperature: flags.Temperature = 0.0,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Compare learned routing with the fitted table while conditions change; no model runs.

    Ray Serve runs replicas that replay a profile. Every prompt is asked twice: routed, and pinned
    to the fitted table's choice. Scenarios: steady (nothing changes), slower (a method becomes
    twice as slow, then recovers), killed (one replica of a method dies, then all of them),
    new_kind (prompts of unseen domains).

    Example: `specadapt bench learning --profile runs/held --fitted-on runs/profile`
    """
    from ops.harness.machine import describe_machine
    from ops.harness.settings import ServiceFlags, load_config, names
    from ops.load.learning.experiment import PHASES, Plan, run_scenario
    from ops.load.learning.report import tables_of

    wanted = names(scenarios, "--scenarios")
    unknown = [name for name in wanted if name not in PHASES]
    if unknown:
        raise InputError(
            f"--scenarios: {', '.join(unknown)} is unknown; known scenarios: {', '.join(PHASES)}"
        )
    served = load_config(config)
    if slowdown is not None:
        engine = served.engine.model_copy(update={"replay_slowdown": slowdown})
        served = served.model_copy(update={"engine": engine})
    plan = Plan(
        given=ServiceFlags(served, bundle, routing, methods),
        profile=profile,
        replicas=replicas,
        temperature=temperature,
        pairs=pairs,
        share=share,
        new=names(new, "--new"),
        fitted_on=fitted_on,
        clusters=clusters,
        seed=seed,
    )
    figures: dict[str, Any] = {"simulated": False, "scenarios": {}}
    with progress() as bar:
        for name in wanted:
            task = bar.add_task(name, total=PHASES[name] * pairs)
            found, settings = run_scenario(plan, name, partial(bar.advance, task))
            figures["scenarios"][name] = found
            figures["settings"] = {
                **describe_machine(),
                **settings,
                "pairs_per_phase": pairs,
                "share_of_capacity": share,
                "temperature": temperature,
                "seed": seed,
            }
    emit(figures, lambda: tables_of(figures), json)
