"""`specadapt trace`: draft tokens accepted at every position, from one plain decode per prompt."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from ops.common import flags
from ops.common.boundary import InputError
from ops.common.output import emit, progress, table


def trace(  # noqa: PLR0913 - its parameters are flags
    out: Annotated[Path, flags.option("--out", "folder of the trace", "DIR")],
    with_bounds: Annotated[
        bool,
        flags.option(
            "--bounds", "time steps too, and compute the speedup of the combined drafters"
        ),
    ] = False,
    bundle: flags.Bundle = None,
    config: flags.Config = None,
    methods: flags.Methods = None,
    prompts: flags.Prompts = None,
    ids: flags.Ids = None,
    limit: flags.Limit = None,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    dtype: flags.DtypeFlag = None,
    threads: flags.Threads = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Record how many draft tokens of every method are accepted at each position of plain answers.

    Each prompt is decoded once, at temperature 0. Lines are written as answers come; run the
    command again to continue. --bounds computes the speedup if each step drafted exactly the
    accepted tokens of the best drafter.

    Example: `specadapt trace --out runs/trace --limit 60 --bounds`
    """
    from ops.common.decoding import encode
    from ops.common.prompts import select
    from ops.common.settings import load_config, resolve, with_baseline, with_dtype
    from ops.routing_tables.bounds import bounds, mats, measure, read_traces
    from ops.routing_tables.profile_store import meta_of
    from ops.routing_tables.tracer import trace_all
    from router.fit.speedup import BASELINE
    from workers.bundle import load_bundle

    setup = with_dtype(with_baseline(resolve(load_config(config), bundle, methods, dtype, threads)))
    if BASELINE not in setup.names:
        raise InputError(f"--methods: add {BASELINE}, which decodes the answers")
    if with_bounds and setup.names == [BASELINE]:
        raise InputError("--methods: name a method that drafts, or leave --bounds out")
    family = load_bundle(setup.bundle)
    longest = setup.engine.max_context - max_tokens
    items, skipped = encode(family, select(prompts, ids, limit, seed), longest)
    meta = meta_of(setup, family, max_tokens)
    with progress() as bar:
        asyncio.run(trace_all(setup, meta, items, out, bar))
    answers = read_traces(out)
    figures: dict[str, Any] = {
        "prompts": len(answers),
        "methods": {name: mats(answers, name) for name in setup.names},
        "bounds": None,
        "skipped_too_long": skipped,
        "settings": meta.model_dump(mode="json"),
    }
    if with_bounds:
        seconds = asyncio.run(measure(setup, items, max_tokens))
        figures["bounds"] = bounds(answers, seconds)
    emit(figures, lambda: _tables(figures, out), json)


def _tables(figures: Mapping[str, Any], out: Path) -> list[Any]:
    from ops.routing_tables.bounds import BOUNDS

    by_method = figures["methods"]
    domains = list(next(iter(by_method.values()))["by_domain"])
    rows = [[n, found["mat"], *found["by_domain"].values()] for n, found in by_method.items()]
    title = f"{out}: output tokens per target step over {figures['prompts']} prompts"
    shown = [table(title, ["method", "all", *domains], rows)]
    if (found := figures["bounds"]) is not None:
        rows = [[*row] for row in found["fixed"].items()] + [[name, found[name]] for name in BOUNDS]
        title = f"Speedup after the first token over {found['answers']} answers"
        shown.append(table(title, ["method", "speedup"], rows))
    return shown
