"""`specadapt bench learning`: what routing learns while it serves, beside the static table."""

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
    replicas: Annotated[int, typer.Option("--replicas", min=1, help="per method")] = 2,
    scenarios: Annotated[
        str, typer.Option("--scenarios", metavar="A,B", help="which of them")
    ] = SCENARIOS,
    pairs: Annotated[int, typer.Option("--pairs", min=2, help="per phase")] = 300,
    share: Annotated[
        float, typer.Option("--share", min=0.01, help="load, as a share of capacity")
    ] = 0.4,
    slowdown: Annotated[
        float | None,
        typer.Option("--slowdown", min=1.0, help="of the replay (default: engine.replay_slowdown)"),
    ] = None,
    new: Annotated[
        str, typer.Option("--new", metavar="A,B", help="domains that the table has not seen")
    ] = "edit,tool_use",
    fitted_on: Annotated[
        Path | None,
        typer.Option(
            "--fitted-on", metavar="DIR", help="profile to fit without --new; for new_kind"
        ),
    ] = None,
    clusters: Annotated[int, typer.Option("--clusters", min=2, help="of that table")] = 8,
    temperature: flags.Temperature = 0.0,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Run scenarios on Ray Serve with replicas that replay a profile; no model runs.

    Every prompt is asked twice: routed, and pinned to what the fitted table gives its cluster.
    steady: nothing happens. slower: a method becomes 2 times slower, and recovers. killed: one
    replica of a method dies, then all of them. new_kind: prompts of unseen domains come.

    Example: `specadapt bench learning --profile runs/held --fitted-on runs/profile`
    """
    from ops.harness.machine import describe_machine
    from ops.harness.settings import load_config, names
    from ops.load.learning.experiment import PHASES, Plan, run_scenario
    from ops.load.learning.report import tables_of

    wanted = names(scenarios, "--scenarios")
    unknown = [name for name in wanted if name not in PHASES]
    if unknown:
        raise InputError(f"--scenarios: no {', '.join(unknown)}, only {', '.join(PHASES)}")
    served = load_config(config)
    if slowdown is not None:
        engine = served.engine.model_copy(update={"replay_slowdown": slowdown})
        served = served.model_copy(update={"engine": engine})
    plan = Plan(
        config=served,
        profile=profile,
        bundle=bundle,
        routing=routing,
        methods=methods,
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
            found, settings = run_scenario(plan, name, lambda task=task: bar.advance(task))
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
