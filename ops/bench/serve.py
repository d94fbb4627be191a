"""`specadapt bench serve`: latency, throughput and goodput of a service at its clients."""

import asyncio
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

from rich.console import Group

from ops.common import flags
from ops.common.output import cell, emit, progress, table, with_interval

OVER = ("over_baseline", "over_baseline_ci95")


def bench_serve(  # noqa: PLR0913 - its parameters are flags
    url: Annotated[
        str | None, flags.option("--url", "address of a running service  [default: start one]")
    ] = None,
    config: flags.Config = None,
    arms: Annotated[
        str,
        flags.option(
            "--arms",
            "what is measured in turns on the same prompts: `routed`, methods of the service, "
            "and addresses of other OpenAI-compatible servers",
            "A,B",
        ),
    ] = "routed",
    against: Annotated[
        str | None,
        flags.option(
            "--against",
            "start another server by this command, to which `--port` is added, as one more arm, "
            'such as "vllm serve MODEL"',
            "CMD",
        ),
    ] = None,
    other_key: Annotated[
        str | None,
        flags.option(
            "--other-key",
            "environment variable with the key for addresses in --arms  [default: no key is sent]",
            "NAME",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        flags.option(
            "--baseline", "arm that ratios are over  [default: the fastest one but `routed`]", "ARM"
        ),
    ] = None,
    dataset_path: Annotated[
        Path | None,
        flags.option("--dataset-path", "prompts as JSON Lines  [default: shipped ones]", "FILE"),
    ] = None,
    num_prompts: Annotated[
        int, flags.option("--num-prompts", "prompts per arm, equal per domain", min=1)
    ] = 100,
    request_rate: Annotated[
        float | None,
        flags.option(
            "--request-rate",
            "requests per second, as a Poisson process  [default: the next request follows "
            "an answer]",
            "R",
            min=1e-3,
        ),
    ] = None,
    max_concurrency: Annotated[
        int | None,
        flags.option(
            "--max-concurrency",
            "most requests in flight  [default: 1; unbounded with --request-rate]",
            min=1,
            max=4096,
        ),
    ] = None,
    turns: Annotated[
        int,
        flags.option(
            "--turns", "turns of each conversation: the prompt file's, else the prompt again", min=1
        ),
    ] = 1,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    temperature: flags.Temperature = 0.0,
    goodput: Annotated[
        str | None,
        flags.option(
            "--goodput",
            "objectives in milliseconds that a good answer meets: ttft, tpot, e2el",
            "KEY:MS,...",
        ),
    ] = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Measure a service under load: latency, throughput, goodput, and speed compared with others.

    With several arms, all answer the same prompts in turns, and each arm's speed over the
    baseline's has a 95% interval. OPENAI_API_KEY is the service's key; other servers do not get it.

    Example: `specadapt bench serve --arms routed,naive,eagle3 --num-prompts 40 --json out.json`
    """
    from ops.bench.serve_runs import Plan, arms_at, compared, measure, objectives, requests_of
    from ops.common.boundary import InputError
    from ops.common.prompts import fingerprint, select
    from ops.common.running_service import running_service, started
    from ops.common.settings import describe_machine, names

    asked = names(arms, "--arms")
    if baseline is not None and baseline not in asked:
        raise InputError(f"--baseline: {baseline} is not one of --arms: {arms}")
    limits = objectives(goodput)
    chosen = select([dataset_path] if dataset_path else None, limit=num_prompts, seed=seed)
    if max_concurrency is None and request_rate is None:
        max_concurrency = 1
    parameters = {"max_tokens": max_tokens, "temperature": temperature}
    plan = Plan(
        requests_of(chosen, num_prompts), turns, parameters, request_rate, max_concurrency, seed
    )
    with ExitStack() as stack:
        address = stack.enter_context(running_service(url, config))
        if against is not None:
            asked.append(stack.enter_context(started(shlex.split(against))))
        found = asyncio.run(arms_at(address, asked, other_key))
        with progress() as bar:
            task = bar.add_task("prompts", total=len(found) * num_prompts)
            served = asyncio.run(measure(found, plan, lambda: bar.advance(task)))
    figures = compared(served, plan, baseline, limits)
    figures["settings"] = {
        **describe_machine(),
        **parameters,
        "started_by": "this command" if url is None else "others",
        "models": {arm.name: arm.model for arm in found},
        "request_rate": request_rate,
        "max_concurrency": max_concurrency,
        "turns": turns,
        "goodput_ms": limits,
        "seed": seed,
        "prompts": {"count": len(chosen), "sha256": fingerprint(chosen)},
    }
    emit(figures, lambda: _tables(figures), json)


def _tables(figures: dict[str, Any]) -> Iterator[Group | str]:
    arms, base = figures["arms"], figures["baseline"]
    rates = ("tokens_per_s", "requests_per_s", "goodput_per_s")
    yield table(
        "At the client",
        ["arm", "requests", "failed", "tokens/s", "requests/s", "good/s"],
        [
            [name, own["requests"], sum(own["errors"].values()), *map(own.get, rates)]
            for name, own in arms.items()
        ],
    )
    yield table(
        f"Speed over {base}, with its 95% interval",
        ["arm", "ratio", "answered by"],
        [
            [
                *(name, with_interval(*map(own.get, OVER))),
                ", ".join(f"{method} {count}" for method, count in own["methods"].items()),
            ]
            for name, own in arms.items()
        ],
    )
    columns = ("mean", "p50", "p95", "p99")
    yield table(
        "Milliseconds",
        ["arm", "", *columns],
        [
            [name, title, *(own[f"{key}_{column}"] for column in columns)]
            for key, title in (("ttft_ms", "TTFT"), ("tpot_ms", "TPOT"), ("e2el_ms", "E2EL"))
            for name, own in arms.items()
        ],
    )
    if figures["settings"]["turns"] > 1:
        rows = [
            [name, turn + 1, *one.values()]
            for name, own in arms.items()
            for turn, one in enumerate(own["by_turn"])
        ]
        by_turn = ("TTFT p50, ms", "tokens/s", "prompt", "cached", "prefix cached")
        yield table("By turn", ["arm", "turn", *by_turn], rows)
    if len(arms) > 1 and figures["same_text"] is not None:
        yield f"share of prompts with the same text from all arms: {cell(figures['same_text'])}"
