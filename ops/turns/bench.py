"""`specadapt bench turns`: first tokens of second turns, with and without a memory of the first."""

import asyncio
from collections.abc import Mapping
from typing import Any

from ops.cli import flags
from ops.cli.output import emit, progress, table


def bench_turns(
    bundle: flags.Bundle = None,
    config: flags.Config = None,
    methods: flags.Methods = None,
    prompts: flags.Prompts = None,
    ids: flags.Ids = None,
    limit: flags.Limit = 20,
    max_tokens: flags.MaxTokens = 64,
    dtype: flags.DtypeFlag = None,
    threads: flags.Threads = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Answer each prompt and a question after it, and time the first token of the second answer:
    with engine.prefix_cache, and without.

    One conversation at a time, greedily; each method in an engine of its own.

    Example: `specadapt bench turns --methods naive,medusa,eagle3,adaptive --limit 20`
    """
    from ops.cli.settings import load_config, resolve, with_dtype
    from ops.measure.machine import describe_machine
    from ops.measure.prompts import fingerprint, select
    from ops.turns.runs import figures_of, measure
    from workers.bundle import load_bundle

    setup = with_dtype(resolve(load_config(config), bundle, methods, dtype, threads))
    family = load_bundle(setup.bundle)
    chosen = select(prompts, ids, limit, seed)
    with progress() as bar:
        turns = asyncio.run(measure(setup, family, chosen, max_tokens, bar))
    figures = {
        "methods": figures_of(turns),
        "settings": {
            **describe_machine(),
            "engine": setup.engine.model_dump(mode="json"),
            "bundle": f"{family.name}@{family.content_hash}",
            "max_tokens": max_tokens,
            "prompts": fingerprint(chosen),
        },
    }
    emit(figures, lambda: _tables(figures["methods"]), json)


def _tables(methods: Mapping[str, Mapping[str, Any]]) -> list[Any]:
    columns = ["read anew ms", "remembered ms", "p95 anew", "p95 remembered", "times sooner"]
    rows = [
        [
            name,
            found["anew"]["median_ms"],
            found["remembered"]["median_ms"],
            found["anew"]["p95_ms"],
            found["remembered"]["p95_ms"],
            found["times_sooner"],
        ]
        for name, found in methods.items()
    ]
    return [table("First token of second turns", ["method", *columns], rows)]
