"""`specadapt profile`: every prompt under every method, and the step times of this machine."""

import asyncio
from pathlib import Path
from typing import Annotated

from ops.common import flags
from ops.common.output import emit, progress, table


def profile(  # noqa: PLR0913 - its parameters are flags
    out: Annotated[Path, flags.option("--out", "folder of the profile", "DIR")],
    bundle: flags.Bundle = None,
    config: flags.Config = None,
    methods: flags.Methods = None,
    prompts: flags.Prompts = None,
    ids: flags.Ids = None,
    limit: flags.Limit = None,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    temperature: flags.Temperature = 0.0,
    dtype: flags.DtypeFlag = None,
    concurrency: flags.Concurrency = 1,
    threads: flags.Threads = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Measure every prompt under every method, plain decoding included, with the serving settings.

    Rows are written as they are measured; run the command again to continue.

    Example: `specadapt profile --out runs/profile --limit 600`
    """
    from ops.common.prompts import select
    from ops.common.settings import load_config, resolve, with_baseline, with_dtype, with_places
    from ops.routing_tables.profile_runs import ProfilePlan, run_profile
    from router.fit.speedup import harmonic_mean

    asked = with_dtype(resolve(load_config(config), bundle, methods, dtype, threads))
    setup = with_places(with_baseline(asked), concurrency)
    chosen = select(prompts, ids, limit, seed)
    plan = ProfilePlan(setup, chosen, max_tokens, temperature, concurrency, seed)
    with progress() as bar:
        measured = asyncio.run(run_profile(plan, out, bar))
    paired = measured.paired()
    speedups = {
        name: harmonic_mean(paired.speedups[:, column])
        for column, name in enumerate(paired.methods)
    }
    figures = {
        "rows": len(measured.rows),
        "methods": list(measured.meta.methods),
        "baseline": measured.baseline,
        "harmonic_mean_speedup": speedups,
        "prompts": len(paired.prompt_ids),
        "settings": measured.meta.model_dump(mode="json"),
    }
    rows = [[name, value] for name, value in speedups.items()]
    title = f"{figures['rows']} rows, {figures['prompts']} prompts count for speed"
    columns = ["method", f"speedup over {measured.baseline}"]
    emit(figures, lambda: [table(title, columns, rows)], json)
