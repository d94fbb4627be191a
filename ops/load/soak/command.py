"""`specadapt bench soak`: memory, handles and tasks over hours of load."""

from typing import Annotated, Any

import typer

from ops.harness import flags
from ops.harness.output import emit, table


def bench_soak(
    minutes: Annotated[
        float, typer.Option("--minutes", min=0.1, help="duration of arrivals in minutes")
    ] = 60.0,
    warm_up: Annotated[
        float,
        typer.Option(
            "--warm-up", min=0.0, metavar="MINUTES", help="minutes at the start that do not count"
        ),
    ] = 10.0,
    every: Annotated[
        float, typer.Option("--every", min=0.1, metavar="S", help="sampling interval in seconds")
    ] = 15.0,
    config: flags.Config = None,
    bundle: flags.SmallBundle = flags.SMALL_BUNDLE,
    rate: flags.Rate = 1.0,
    prompts: flags.Prompts = None,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Run a service under load for hours and check that memory, files and tasks do not grow.

    Arrivals are Poisson. Of five requests three stream, one disconnects after a few tokens and one
    asks for a whole answer. Without --config it serves what `bench chaos` serves.

    Example: `specadapt bench soak --minutes 60 --json soak.json`
    """
    import asyncio
    import random

    from ops.harness.boundary import InputError
    from ops.harness.machine import describe_machine
    from ops.harness.own_service import own_service
    from ops.harness.prompts import fingerprint, select
    from ops.harness.settings import load_config
    from ops.load.arrivals import poisson
    from ops.load.chaos.runs import served
    from ops.load.soak.figures import figures_of
    from ops.load.soak.runs import run_soak
    from workers.bundle import load_bundle

    if warm_up >= minutes:
        raise InputError(f"--warm-up: {warm_up:g} min are all of --minutes {minutes:g}")
    asked = served(bundle) if config is None else load_config(config)
    settings = asked.model_copy(update={"bundle": bundle})
    chosen = select(prompts)
    random.Random(seed).shuffle(chosen)
    answers = {"max_tokens": max_tokens, "ignore_eos": True}
    parameters = {"model": load_bundle(bundle).name, **answers}
    arrivals = poisson(max(1, round(rate * minutes * 60.0)), seed) / rate
    with own_service(settings) as service:
        run = asyncio.run(run_soak(service, chosen, arrivals, parameters, every))
    figures = {
        **figures_of(run.samples, warm_up * 60.0, run.idle),
        "outcomes": dict(run.outcomes),
        "settings": {
            **describe_machine(),
            "bundle": str(bundle),
            "replicas": {m.name: m.max_replicas for m in settings.methods},
            "layout": settings.layout,
            "ingresses": settings.http.ingress_replicas,
            "minutes": minutes,
            "warm_up_minutes": warm_up,
            "every_s": every,
            "rate": rate,
            **answers,
            "seed": seed,
            "prompts": {"sha256": fingerprint(chosen), "count": len(chosen)},
        },
    }
    emit(figures, lambda: _tables(figures), json)


def _tables(figures: dict[str, Any]) -> list[Any]:
    held = [
        [row["role"], *row["memory_mb"], f"{row['growth']:+.1%}", *row["handles"]]
        for row in figures["processes"]
    ]
    held.append(["all", *figures["memory_mb"], f"{figures['growth']:+.1%}", None, None])
    idle = figures["idle"]
    before, after = idle["tasks"]
    counts = [[f"tasks of {name}", count, after.get(name)] for name, count in before.items()]
    counts += [[name, *idle[name]] for name in ("handles", "threads")]
    return [
        table(
            "Held after the warm-up and at the end, MB and open files",
            ["process", "MB first", "MB last", "growth", "files first", "last"],
            held,
        ),
        table("With nothing to do, before the load and after it", ["", "before", "after"], counts),
        table(
            "What became of the requests",
            ["", "requests"],
            [[*o] for o in figures["outcomes"].items()],
        ),
        f"{figures['replaced']} processes came or went",
    ]
