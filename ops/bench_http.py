"""`specadapt bench http`: latency and throughput of the served system."""

import asyncio
import statistics
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ops import flags
from ops.output import emit, progress, table

if TYPE_CHECKING:
    from ops.http_client import Reply
    from ops.prompts import Prompt


def bench_http(
    url: Annotated[
        str | None, typer.Option("--url", help="a running service  [default: starts one]")
    ] = None,
    config: flags.Config = None,
    bundle: flags.Bundle = None,
    prompts: flags.Prompts = None,
    ids: flags.Ids = None,
    limit: flags.Limit = None,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    temperature: flags.Temperature = 0.0,
    concurrency: flags.Concurrency = 1,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Send prompts to the service and time the answers from the client's side.

    Example: `specadapt bench http --limit 40 --concurrency 4`
    """
    from ops.machine import describe_machine
    from ops.prompts import fingerprint, select
    from ops.service import running_service

    chosen = select(prompts, ids, limit, seed)
    parameters = {"max_tokens": max_tokens, "temperature": temperature, "seed": seed}
    with running_service(url, config, bundle) as address:
        replies, seconds = asyncio.run(_measure(address, chosen, parameters, concurrency))
    figures = summarise([reply for reply in replies if reply is not None], seconds)
    figures["errors"] = replies.count(None)
    figures["settings"] = {
        **describe_machine(),
        **parameters,
        "concurrency": concurrency,
        "prompts": {"count": len(chosen), "sha256": fingerprint(chosen)},
        "started_by": "this command" if url is None else "others",
    }
    rows = [[name, value] for name, value in figures.items() if name not in {"settings", "methods"}]
    emit(figures, lambda: [table("Served", ["figure", "value"], rows)], json)


def summarise(replies: list["Reply"], seconds: float) -> dict[str, Any]:
    """The figures over all answers; `seconds` is the wall-clock time of the whole run.

    overhead_ms = time to first byte - the engine's own time to first token - the decision.
    """
    tokens = sum(reply.output_tokens for reply in replies)
    first = [r.first_text_seconds * 1e3 for r in replies if r.first_text_seconds is not None]
    overhead = [ms for reply in replies if (ms := overhead_ms(reply)) is not None]
    methods: dict[str, int] = {}
    for reply in replies:
        name = reply.headers.get("x-specadapt-method", "unknown")
        methods[name] = methods.get(name, 0) + 1
    return {
        "requests": len(replies),
        "ttft_ms_p50": statistics.median(first) if first else None,
        "overhead_ms_p50": statistics.median(overhead) if overhead else None,
        "tokens_per_s": tokens / seconds,
        "requests_per_s": len(replies) / seconds,
        "methods": methods,
    }


def overhead_ms(reply: "Reply") -> float | None:
    """What HTTP, Ray Serve and the ingress added to one answer's first byte."""
    engine = reply.speculative.get("engine_first_token_ms")
    routing = reply.speculative.get("routing_ms")
    if reply.first_byte_seconds is None or engine is None or routing is None:
        return None
    return reply.first_byte_seconds * 1e3 - float(engine) - float(routing)


async def _measure(
    url: str, prompts: list["Prompt"], parameters: dict[str, Any], concurrency: int
) -> tuple[list["Reply | None"], float]:
    import httpx

    from ops.http_client import Reply, RequestFailedError, model_name, stream_chat

    limits = httpx.Limits(max_connections=concurrency)
    async with httpx.AsyncClient(base_url=url, timeout=None, limits=limits) as client:
        parameters = {"model": await model_name(client), **parameters}
        places = asyncio.Semaphore(concurrency)

        async def ask(prompt: "Prompt") -> Reply | None:
            reply = Reply()
            async with places:
                try:
                    async for _ in stream_chat(client, prompt.messages, reply, **parameters):
                        pass
                except (RequestFailedError, httpx.HTTPError) as error:
                    typer.echo(f"{prompt.id}: {error or type(error).__name__}", err=True)
                    return None
                finally:
                    bar.advance(task)
            return reply

        with progress() as bar:
            task = bar.add_task("requests", total=len(prompts))
            # One answer beforehand, so that connections and caches of the client are there.
            await ask(prompts[0])
            bar.reset(task)
            started = time.perf_counter()
            replies = await asyncio.gather(*map(ask, prompts))
            return list(replies), time.perf_counter() - started
