"""`specadapt loadtest`: time to first token, time per token and goodput under open-loop load."""

from typing import Annotated, Any

import typer

from ops.harness import flags
from ops.harness.boundary import InputError
from ops.harness.output import emit, progress, table


def loadtest(
    url: Annotated[str, typer.Option("--url", help="address of the server, without /v1")],
    rate: flags.Rate,
    requests: Annotated[int, typer.Option("--requests", min=2, metavar="N")] = 100,
    trace: flags.Arrivals = None,
    prompts: flags.Prompts = None,
    model: Annotated[
        str | None, typer.Option("--model", help="model name  [default: the first in /v1/models]")
    ] = None,
    key: Annotated[str, typer.Option("--key", envvar="OPENAI_API_KEY", show_default=False)] = "",
    ttft_slo: flags.TtftSlo = None,
    tpot_slo: flags.TpotSlo = None,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    temperature: flags.Temperature = 0.0,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Send open-loop load to an OpenAI-compatible server and measure latency and goodput.

    Requests are sent at fixed times, whether or not earlier answers have ended. Goodput counts
    answers that meet both objectives.

    Example: `specadapt loadtest --url http://127.0.0.1:8000 --rate 2 --ttft-slo 1 --tpot-slo 0.1`
    """
    import asyncio

    from ops.harness.chat_client import model_name
    from ops.harness.machine import describe_machine
    from ops.harness.prompts import fingerprint, select
    from ops.load.arrivals import poisson
    from ops.load.arrivals import trace as traced
    from ops.load.client import client
    from ops.load.loadtest.figures import Target, summary
    from ops.load.loadtest.runs import asked_of, drive

    chosen = select(prompts)
    asked = asked_of(chosen, requests, seed)
    unit = poisson(requests, seed) if trace is None else traced(trace, requests)

    async def run() -> tuple[str, Any]:
        async with client(url, key) as server:
            named = model or await model_name(server)
            parameters = {"model": named, "max_tokens": max_tokens, "temperature": temperature}
            with progress() as bar:
                task = bar.add_task("answers", total=requests)
                return named, await drive(
                    server, asked, unit / rate, parameters, lambda: bar.advance(task)
                )

    named, (answers, seconds) = asyncio.run(run())
    if all(answer.error is not None for answer in answers):
        raise InputError(f"--url: none of {requests} requests was answered: {answers[0].error}")
    found = summary(answers, seconds, Target(ttft_slo, tpot_slo))
    found["settings"] = {
        **describe_machine(),
        "url": url,
        "model": named,
        "rate": rate,
        "arrivals": "poisson" if trace is None else trace.name,
        "max_tokens": max_tokens,
        "temperature": temperature,
        "seed": seed,
        "prompts": {"sha256": fingerprint(chosen), "count": len(chosen)},
    }
    emit(found, lambda: _tables(found), json)


def _tables(found: dict[str, Any]) -> list[Any]:
    rows = [
        [name, *((found[key] or {}).get(at) for at in ("mean", "p50", "p95", "p99"))]
        for name, key in (
            ("time to first token, s", "ttft_s"),
            ("time per token after it, s", "tpot_s"),
            ("whole answer, s", "latency_s"),
        )
    ]
    counts = [
        ["requests", found["requests"]],
        ["answered", found["answered"]],
        *([f"error {name}", count] for name, count in found["errors"].items()),
        ["answers a second", found["answered_per_s"]],
        ["tokens a second", found["tokens_per_s"]],
        ["goodput, answers a second", found["goodput_per_s"]],
        ["share within the objectives", found["good_share"]],
    ]
    return [
        table("Under open-loop load", ["", "mean", "p50", "p95", "p99"], rows),
        table("Answers", ["", ""], counts),
    ]
