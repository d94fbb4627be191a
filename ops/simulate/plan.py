"""`specadapt plan`: how many replicas of what, for a rate and objectives."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group

from ops.harness import flags
from ops.harness.boundary import InputError
from ops.harness.output import emit, progress, table

if TYPE_CHECKING:
    from ops.simulate.planning import Search


def plan(
    rate: flags.Rate,
    config: flags.Config = None,
    bundle: flags.Bundle = None,
    routing: flags.Routing = None,
    methods: flags.Methods = None,
    traces: flags.AcceptanceTraces = None,
    costs: Annotated[
        list[str] | None,
        typer.Option(
            "--costs",
            metavar="MODEL",
            help="step costs, as for `specadapt simulate`; repeat it, each with a --price, to "
            "compare hardware  [default: measured]",
        ),
    ] = None,
    overhead: flags.ServiceOverhead = None,
    ttft_slo: flags.TtftSlo = None,
    tpot_slo: flags.TpotSlo = None,
    latency_slo: flags.LatencySlo = None,
    share: Annotated[
        float,
        typer.Option(
            "--share", min=0.01, max=1.0, help="share of requests that must meet all objectives"
        ),
    ] = 0.95,
    price: Annotated[
        list[float] | None,
        typer.Option(
            "--price",
            min=0.0,
            metavar="P",
            help="price of a replica per hour; one for each --costs  [default: 1]",
        ),
    ] = None,
    most: Annotated[
        int, typer.Option("--most", min=1, metavar="N", help="maximum number of replicas")
    ] = 200,
    requests: Annotated[
        int, typer.Option("--requests", min=100, metavar="N", help="requests per simulation")
    ] = 3000,
    trace: flags.Arrivals = None,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    temperature: flags.Temperature = 0.0,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Find the cheapest fleet that meets latency objectives, by simulation.

    Tries routing with all methods on every replica, routing with one method per replica, in the
    numbers that the prompts want, and each method alone.

    Example: `specadapt plan --traces runs/trace --rate 20 --ttft-slo 1 --tpot-slo 0.05 --price 2.5`
    """
    from ops.harness.machine import describe_machine
    from ops.harness.settings import ServiceFlags, load_config
    from ops.load.arrivals import poisson
    from ops.load.arrivals import trace as recorded
    from ops.simulate.experiment import Scenario, load_experiment
    from ops.simulate.outcomes import Objectives
    from ops.simulate.overhead import read_overhead
    from ops.simulate.planning import Demand, searches_of, smallest
    from ops.simulate.runs import on_all_cores

    if ttft_slo is None and tpot_slo is None and latency_slo is None:
        raise InputError("--ttft-slo, --tpot-slo, --latency-slo: set at least one")
    priced = _priced(costs or ["measured"], price)
    # Each replica is bought with cores of its own.
    added = read_overhead(overhead).model_copy(update={"cores": None})
    given = ServiceFlags(load_config(config), bundle, routing, methods)
    scenario = Scenario(temperature, max_tokens, seed, overhead=added)
    experiments = {model: load_experiment(given, traces, model, scenario) for model in priced}
    unit = poisson(requests, seed) if trace is None else recorded(trace, requests)
    demand = Demand(unit, rate, Objectives(ttft_slo, tpot_slo, latency_slo), share, most, seed)
    searches = [
        (model, one) for model, own in experiments.items() for one in searches_of(own, demand)
    ]
    feasible = [(model, search) for model, search in searches if search.least <= most]
    if not feasible:
        fewest = min(search.least for _, search in searches)
        raise InputError(
            f"--most: at {rate:g} requests per second the fleet needs more than {fewest} replicas"
        )
    plans = []
    with progress() as bar:
        task = bar.add_task("fleets", total=len(feasible))
        for model, own in experiments.items():
            tried = [search for of, search in feasible if of == model]
            for search, found in zip(tried, on_all_cores(own.world, smallest, tried), strict=True):
                bar.advance(task)
                if found is not None:
                    plans.append(_plan(search, found, model, priced[model]))
    plans.sort(key=lambda one: (one["price_per_hour"], one["latency_mean_s"]))
    settings = {model: own.settings for model, own in experiments.items()}
    figures = {
        "plans": plans,
        "best": plans[0] if plans else None,
        "settings": {
            **describe_machine(),
            **settings[next(iter(settings))],
            "costs": [own["costs"] for own in settings.values()],
            "rate": rate,
            "slo": {"ttft_s": ttft_slo, "tpot_s": tpot_slo, "latency_s": latency_slo},
            "share": share,
            "price": priced,
            "most": most,
            "requests": requests,
            "arrivals": "poisson" if trace is None else trace.name,
        },
    }
    emit(figures, lambda: _tables(figures), json)


def _priced(costs: Sequence[str], prices: Sequence[float] | None) -> dict[str, float]:
    """By cost model a replica's price an hour. Raises InputError where one has none, and for a
    model that is named twice."""
    if len(set(costs)) < len(costs):
        raise InputError("--costs: a model is named twice")
    given = prices or [1.0]
    if len(given) != len(costs):
        raise InputError(
            f"--price: got {len(given)} prices for {len(costs)} --costs; give one for each"
        )
    return dict(zip(costs, given, strict=True))


def _plan(search: "Search", found: dict[str, Any], model: str, price: float) -> dict[str, Any]:
    per_hour = found["replicas"] * price
    per_token = per_hour / 3600.0 / found["tokens_per_s"]
    layout = "shared" if search.shared else "per_method"
    return {
        "policy": search.policy,
        "layout": layout if search.policy == "routed" else "one method",
        "costs": model,
        "price_per_hour": per_hour,
        "price_per_million_tokens": 1e6 * per_token,
        **found,
    }


def _tables(figures: dict[str, Any]) -> Iterable[Group | str]:
    settings = figures["settings"]
    columns = {
        **({"costs": "costs"} if len(settings["costs"]) > 1 else {}),
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
    for one in figures["plans"]:
        if one["layout"] == "per_method":
            parts = (f"{count} of {name}" for name, count in one["fleet"].items())
            yield f"One method per replica: {', '.join(parts)}."
    for costs in settings["costs"]:
        yield f"Step costs: {costs['model']} ({costs['source']})."
