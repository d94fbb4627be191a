"""`specadapt bench http`: latency and throughput of the served system."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ops.harness import flags
from ops.harness.output import cell, emit, progress, table

if TYPE_CHECKING:
    from rich.console import Group

    from ops.bench.http.runs import Asked


def bench_http(
    url: Annotated[
        str | None, typer.Option("--url", help="address of a running service  [default: start one]")
    ] = None,
    config: flags.Config = None,
    bundle: flags.Bundle = None,
    method: Annotated[
        str | None, typer.Option("--method", metavar="M", help="method to pin  [default: routed]")
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--against",
            metavar="COMMAND",
            help="command that starts another server to compare with, once for each server; "
            "`vllm serve` alone gets the service's own arguments",
        ),
    ] = None,
    prompts: flags.Prompts = None,
    ids: flags.Ids = None,
    limit: flags.Limit = None,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    temperature: flags.Temperature = 0.0,
    concurrency: flags.Concurrency = 1,
    turns: Annotated[
        int,
        typer.Option(
            "--turns",
            min=1,
            metavar="N",
            help="make a conversation of every prompt: it is asked N times, each time after what "
            "was said before, and the last turn once more where no cached prefix counts",
        ),
    ] = 1,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Measure latency and throughput of the service from the client's side.

    With --against, the service and the other servers answer the same prompts in turns. With
    --method it then has that method alone.

    Example: `specadapt bench http --limit 40 --concurrency 8`
    """
    from ops.bench.http.runs import Asked
    from ops.harness.boundary import InputError
    from ops.harness.machine import describe_machine
    from ops.harness.prompts import fingerprint, select

    if against and url is not None:
        raise InputError("--against starts the service itself; leave out --url")
    if against and turns > 1:
        raise InputError("--turns: --against compares single turns; leave out one of the two")
    chosen = select(prompts, ids, limit, seed)
    parameters = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
    asked = Asked(chosen, parameters, concurrency, turns)
    if against:
        figures, more = _against(against, config, bundle, method, asked)
    else:
        figures, more = _served(url, config, bundle, method, asked)
    figures["settings"] = {
        **describe_machine(),
        **parameters,
        **more,
        "concurrency": concurrency,
        "turns": turns,
        "prompts": {"count": len(chosen), "sha256": fingerprint(chosen)},
    }
    emit(figures, lambda: _tables(figures), json)


def _tables(figures: dict[str, Any]) -> Iterator["Group"]:
    own = {"settings", "methods", "by_turn", "against"}
    shown = {name: figures[name] for name in figures if name not in own}
    yield table("Served", ["figure", "value"], _rows(shown))
    for other in figures.get("against", ()):
        rows = _rows({name: other[name] for name in other if name != "command"})
        yield table(f"Against {other['command']}", ["figure", "value"], rows)
    if "by_turn" in figures:
        columns = ["turn", "answers", "ttft_ms_p50", "cached"]
        rows = [[one[column] for column in columns] for one in figures["by_turn"]]
        yield table("By turn", columns, rows)


def _rows(figures: dict[str, Any], prefix: str = "") -> list[list[Any]]:
    rows: list[list[Any]] = []
    for name, value in figures.items():
        if isinstance(value, dict):
            rows += _rows(value, f"{prefix}{name} ")
        else:
            shown = " to ".join(map(cell, value)) if isinstance(value, list) else value
            rows.append([prefix + name, shown])
    return rows


def _against(
    commands: Sequence[str],
    config: Path | None,
    bundle: Path | None,
    method: str | None,
    asked: "Asked",
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the figures of servers that take turns, and the settings of ours."""
    from ops.bench.http.against import compare
    from ops.bench.http.other_server import split_command
    from ops.harness.settings import load_config, resolve, with_places

    settings = load_config(config)
    setup = with_places(resolve(settings, bundle, method), asked.concurrency)
    figures = compare(settings, setup, [split_command(command) for command in commands], asked)
    served = {"method": method or "routed", "engine": setup.engine.model_dump(mode="json")}
    return figures, served


def _served(
    url: str | None, config: Path | None, bundle: Path | None, method: str | None, asked: "Asked"
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the figures of one service, and which service it was."""
    from ops.harness.running_service import running_service

    with running_service(url, config, bundle) as address:
        figures = asyncio.run(_measure(address, method, asked))
    return figures, {
        "method": method or "routed",
        "started_by": "this command" if url is None else "others",
    }


async def _measure(url: str, method: str | None, asked: "Asked") -> dict[str, Any]:
    """Ask a service all prompts and return the figures."""
    import httpx

    from ops.bench.http.report import by_turn, summarise
    from ops.bench.http.runs import Questions
    from ops.harness.chat_client import model_name
    from ops.harness.processor_time import per_request_ms, processor_seconds
    from workers.http_clients import async_client

    limits = httpx.Limits(max_connections=asked.concurrency)
    async with async_client(url, timeout=None, limits=limits) as client:
        model = await model_name(client)
        pinned = model if method is None else f"{model}:{method}"
        questions = Questions(client, asked.prompts, {"model": pinned, **asked.parameters})
        # One answer beforehand, so that connections and caches of the client are there.
        await questions.ask(asked.prompts[0])
        with progress() as bar:
            task = bar.add_task("requests", total=len(asked.prompts))
            before = processor_seconds(url)
            talks, seconds = await questions.conversations(
                asked.turns, asked.concurrency, lambda: bar.advance(task)
            )
    replies = [reply for talk in talks for reply in talk]
    figures = summarise([reply for reply in replies if reply is not None], seconds)
    spent = processor_seconds(url)
    spent.subtract(before)
    more: dict[str, Any] = {"processor_ms": per_request_ms(spent, len(replies))}
    if asked.turns > 1:
        more["by_turn"] = by_turn(talks, asked.turns)
    return figures | {"errors": replies.count(None)} | more
