"""`specadapt bench routed`: compare routed requests with pinned ones on the real service."""

import asyncio
from typing import Annotated

import typer

from ops.harness import flags
from ops.harness.boundary import InputError
from ops.harness.output import emit, progress


def bench_routed(
    url: Annotated[
        str | None, typer.Option("--url", help="address of a running service  [default: start one]")
    ] = None,
    config: flags.Config = None,
    bundle: flags.Bundle = None,
    methods: flags.Methods = None,
    prompts: flags.Prompts = None,
    ids: flags.Ids = None,
    limit: flags.Limit = None,
    repeats: Annotated[
        int,
        typer.Option("--repeats", min=1, help="number of repeats; the oracle needs at least two"),
    ] = 2,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    temperature: flags.Temperature = 0.0,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Compare routed requests with requests pinned to each method, one request at a time.

    A service that this command starts serves --methods and restarts in every repeat. With --url,
    --methods names the methods of that service to compare with.

    Example: `specadapt bench routed --limit 80 --temperature 0.8 --json routed.json`
    """
    from ops.bench.routed.figures import same_text, summarise
    from ops.bench.routed.report import tables_of
    from ops.bench.routed.runs import Plan, measure
    from ops.bench.routed.service import joined, started
    from ops.harness.machine import describe_machine
    from ops.harness.prompts import fingerprint, select
    from ops.harness.settings import names, resolve, served_config, with_dtype
    from router.fit.speedup import MIN_TOKENS

    if max_tokens < MIN_TOKENS:
        raise InputError(f"--max-tokens: answers under {MIN_TOKENS} tokens do not count for speed")
    plan = Plan(select(prompts, ids, limit, seed), repeats, max_tokens, temperature, seed)
    settings = served_config(config)
    if url is not None:
        wanted = None if methods is None else names(methods)
        site = asyncio.run(joined(url, settings, wanted))
    else:
        site = started(settings, with_dtype(resolve(settings, bundle, methods)))
    answers = repeats * (1 + len(site.methods))
    with progress() as bar:
        task = bar.add_task("requests", total=answers * len(plan.prompts))
        measured = measure(site, plan, lambda: bar.advance(task))
    figures = {
        "prompts": len(plan.prompts),
        "errors": measured.errors,
        **summarise(measured.runs, site.methods, repeats, seed),
        "same_text": same_text(measured.runs, answers) if temperature == 0 else None,
        "settings": {
            **describe_machine(),
            **site.settings,
            "repeats": repeats,
            "max_tokens": max_tokens,
            "temperature": temperature,
            "seed": seed,
            "min_tokens_for_speed": MIN_TOKENS,
            "tables_at_the_end": measured.tables,
            "prompts": {"count": len(plan.prompts), "sha256": fingerprint(plan.prompts)},
        },
    }
    emit(figures, lambda: tables_of(figures), json)
