"""`specadapt plan`: how many replicas of what, for a rate and objectives."""

from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.console import Group

from ops.cli import flags
from ops.cli.boundary import InputError
from ops.cli.output import emit, progress, table


def plan(
    rate: flags.Rate,
    config: flags.Config = None,
    bundle: flags.Bundle = None,
    routing: flags.Routing = None,
    methods: flags.Methods = None,
    traces: flags.AcceptanceTraces = None,
    costs: flags.StepCosts = "measured",
    ttft_slo: flags.TtftSlo = None,
    tpot_slo: flags.TpotSlo = None,
    latency_slo: flags.LatencySlo = None,
    share: Annotated[
        float,
        typer.Option("--share", min=0.01, max=1.0, help="of the requests keep to all objectives"),
    ] = 0.95,
    price: Annotated[
        float, typer.Option("--price", min=0.0, metavar="P", help="of a replica's hour")
    ] = 1.0,
    most: Annotated[int, typer.Option("--most", min=1, metavar="N", help="replicas")] = 200,
    requests: Annotated[
        int, typer.Option("--requests", min=100, metavar="N", help="of each simulation")
    ] = 3000,
    trace: flags.Arrivals = None,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    temperature: flags.Temperature = 0.0,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Find the smallest fleet that keeps to objectives: routed, with all methods on every replica
    or one on each, and each method alone. Every fleet that is tried is simulated.

    Example: `specadapt plan --traces runs/trace --rate 20 --ttft-slo 1 --tpot-slo 0.05 --price 2.5`
    """
    from ops.cli.settings import load_config
    from ops.load.arrivals import poisson
    from ops.load.arrivals import trace as recorded
    from ops.load.policies import ONLY, ROUTED
    from ops.measure.machine import describe_machine
    from ops.simulate.experiment import load_experiment
    from ops.simulate.outcomes import Objectives
    from ops.simulate.planning import Search, smallest
    from ops.simulate.policies import Fleet
    from ops.simulate.runs import on_all_cores

    if ttft_slo is None and tpot_slo is None and latency_slo is None:
        raise InputError("--ttft-slo, --tpot-slo, --latency-slo: name one at least")
    experiment = load_experiment(
        *(load_config(config), bundle, routing, methods, traces, costs, temperature, max_tokens),
        *(0.0, (), seed),
    )
    served = experiment.methods
    ways = [(ROUTED, True), *([(ROUTED, False)] if len(served) > 1 else [])]
    ways += [(f"{ONLY}{m}", True) for m in served] if len(served) > 1 else []
    unit = poisson(requests, seed) if trace is None else recorded(trace, requests)
    searches = []
    for policy, shared in ways:
        step = 1 if shared else len(served)
        each = experiment.capacity(Fleet(step, shared), policy) / step
        least = max(step, int(rate / each) + 1)
        objectives = Objectives(ttft_slo, tpot_slo, latency_slo)
        searches.append(
            Search(policy, shared, step, least, most, unit, rate, objectives, share, seed)
        )
    feasible = [search for search in searches if search.least <= most]
    if not feasible:
        fewest = min(search.least for search in searches)
        raise InputError(f"--most: at {rate:g} requests a second {fewest} replicas are too few yet")
    plans = []
    with progress() as bar:
        task = bar.add_task("fleets", total=len(feasible))
        for search, found in zip(
            feasible, on_all_cores(experiment.world, smallest, feasible), strict=True
        ):
            bar.advance(task)
            if found is not None:
                layout = "shared" if search.shared else "per_method"
                plans.append(_plan(search.policy, layout, found, price))
    plans.sort(key=lambda one: (one["price_per_hour"], one["latency_mean_s"]))
    figures = {
        "plans": plans,
        "best": plans[0] if plans else None,
        "settings": {
            **describe_machine(),
            **experiment.settings,
            "rate": rate,
            "slo": {"ttft_s": ttft_slo, "tpot_s": tpot_slo, "latency_s": latency_slo},
            "share": share,
            "price": price,
            "most": most,
            "requests": requests,
            "arrivals": "poisson" if trace is None else trace.name,
        },
    }
    emit(figures, lambda: _tables(figures), json)


def _plan(policy: str, layout: str, found: dict[str, Any], price: float) -> dict[str, Any]:
    per_hour = found["replicas"] * price
    per_token = per_hour / 3600.0 / found["tokens_per_s"]
    return {
        "policy": policy,
        "layout": layout if policy == "routed" else "one method",
        "price_per_hour": per_hour,
        "price_per_million_tokens": 1e6 * per_token,
        **found,
    }


def _tables(figures: dict[str, Any]) -> Iterable[Group | str]:
    settings = figures["settings"]
    columns = {
        "layout": "layout",
        "replicas": "replicas",
        "an hour": "price_per_hour",
        "1M tokens": "price_per_million_tokens",
        "good": "good_share",
        "TTFT p95": "ttft_p95_s",
        "TPOT p95": "tpot_p95_s",
        "p95 s": "latency_p95_s",
        "busy": "busy_share",
    }
    if not figures["plans"]:
        yield (
            f"No fleet of up to {settings['most']} replicas has {settings['share']:.0%} of "
            f"{settings['rate']:g} requests a second within the objectives."
        )
        return
    yield table(
        f"Simulated: fleets that have {settings['share']:.0%} of {settings['rate']:g} requests a "
        "second within the objectives, the cheapest first",
        ["policy", *columns],
        [[one["policy"], *(one[key] for key in columns.values())] for one in figures["plans"]],
    )
    yield f"Step costs: {settings['costs']['model']} ({settings['costs']['source']})."
