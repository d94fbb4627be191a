"""`specadapt bench balance`: how evenly two replicas of a method share an open-loop load."""

import asyncio
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ops.cli import flags
from ops.cli.numbers import load_shares
from ops.cli.output import emit, progress, table

if TYPE_CHECKING:
    from ops.measure.prompts import Prompt
    from schemas import AppConfig

REPLICAS = 2


def bench_balance(
    config: flags.Config = None,
    bundle: flags.Bundle = None,
    method: Annotated[
        str | None,
        typer.Option("--method", metavar="M", help="of the replicas  [default: the first]"),
    ] = None,
    prompts: flags.Prompts = None,
    ids: flags.Ids = None,
    limit: flags.Limit = None,
    shares: Annotated[
        str, typer.Option("--shares", metavar="A,B", help="loads as shares of measured capacity")
    ] = "0.3,0.7",
    requests: Annotated[int, typer.Option("--requests", min=2, help="per load")] = 100,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    temperature: flags.Temperature = 0.0,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Load a service of one method on two one-thread replicas, each on a core of its own, and then
    the configured methods on a replica each; arrivals are a Poisson process.

    Example: `specadapt bench balance --shares 0.3,0.7 --requests 200 --limit 80`
    """
    from ops.cli.settings import load_config
    from ops.measure.machine import describe_machine
    from ops.measure.prompts import fingerprint, select

    settings = load_config(config)
    loads = load_shares(shares)
    chosen = select(prompts, ids, limit, seed)
    parameters = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
    figures: dict[str, Any] = {
        name: _served(site, bundle, chosen, parameters, loads, requests, name)
        for name, site in {
            "replicas": _twice(settings, method),
            "methods": settings,
        }.items()
    }
    figures["settings"] = {
        **describe_machine(),
        **parameters,
        "method": _twice(settings, method).methods[0].name,
        "prompts": {"count": len(chosen), "sha256": fingerprint(chosen)},
    }
    emit(figures, lambda: _tables(figures), json)


def _twice(settings: "AppConfig", method: str | None) -> "AppConfig":
    """The configuration with one method on two one-thread replicas that keep to a core each."""
    from ops.cli.boundary import InputError

    known = {one.name: one for one in settings.methods}
    name = method or settings.methods[0].name
    if name not in known:
        raise InputError(f"--method: {name!r} is not served; choose from {', '.join(known)}")
    replicas = {"min_replicas": REPLICAS, "max_replicas": REPLICAS}
    return settings.model_copy(
        update={
            "layout": "per_method",
            "methods": (known[name].model_copy(update=replicas),),
            "engine": settings.engine.model_copy(update={"threads": 1, "pin_cores": True}),
            "router": settings.router.model_copy(update={"default_method": None}),
        }
    )


def _served(
    site: "AppConfig",
    bundle: Path | None,
    prompts: list["Prompt"],
    parameters: dict[str, Any],
    shares: list[float],
    requests: int,
    name: str,
) -> dict[str, Any]:
    """The figures of one service under each of the loads."""
    import yaml

    from ops.service.running import running_service

    replicas = sum(one.max_replicas for one in site.methods)
    with tempfile.TemporaryDirectory(prefix="specadapt-") as folder:
        file = Path(folder) / "config.yaml"
        file.write_text(yaml.safe_dump(site.model_dump(mode="json")))
        with running_service(None, file, bundle) as url, progress() as bar:

            def ticks(what: str, total: int) -> Callable[[], None]:
                return partial(bar.advance, bar.add_task(f"{name}: {what}", total=total))

            return asyncio.run(_loaded(url, prompts, parameters, shares, requests, replicas, ticks))


async def _loaded(
    url: str,
    prompts: list["Prompt"],
    parameters: dict[str, Any],
    shares: list[float],
    requests: int,
    replicas: int,
    ticks: Callable[[str, int], Callable[[], None]],
) -> dict[str, Any]:
    import httpx

    from ops.balance.report import offered
    from ops.balance.runs import open_loop, reports, watched
    from ops.http.runs import Questions
    from ops.load.arrivals import poisson
    from ops.service.client import model_name

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=None, limits=limits) as client:
        questions = Questions(client, prompts, {"model": await model_name(client), **parameters})
        while len(await reports(client)) < replicas:
            await asyncio.sleep(0.2)
        # As many requests in flight as fill every replica's batch.
        in_flight = 8 * replicas
        _, seconds = await questions.all(in_flight, ticks("capacity", len(prompts)))
        capacity = len(prompts) / seconds
        loads = []
        for share in shares:
            rate = share * capacity
            arrivals = poisson(requests, parameters["seed"]) / rate
            tick = ticks(f"{share:g} of capacity", requests)
            async with watched(client) as samples:
                replies = await open_loop(questions, prompts, arrivals, tick)
            loads.append(offered(share, rate, replies, samples))
    return {"capacity_requests_per_s": capacity, "loads": loads}


def _tables(figures: dict[str, Any]) -> list[Any]:
    columns = ["of capacity", "requests/s", "errors", "mean s"]

    def rows(name: str, *more: Callable[[dict[str, Any]], Any]) -> list[list[Any]]:
        keys = ("share_of_capacity", "offered_requests_per_s", "errors", "mean_latency_s")
        loads = figures[name]["loads"]
        return [[*(load[key] for key in keys), *(cell(load) for cell in more)] for load in loads]

    def outstanding(load: dict[str, Any]) -> str:
        return " ".join(f"{mean:.0f}" for mean in load["mean_outstanding_tokens"].values())

    def reasons(load: dict[str, Any]) -> str:
        return " ".join(f"{reason} {share:.0%}" for reason, share in load["reasons"].items())

    return [
        table(
            f"{figures['settings']['method']} on {REPLICAS} replicas",
            [*columns, "outstanding tokens", "largest/smallest"],
            rows("replicas", outstanding, lambda load: load["largest_over_smallest"]),
        ),
        table("The configured methods", [*columns, "reasons"], rows("methods", reasons)),
    ]
