"""`specadapt bench stages`: drafting, verification, sampling and the host, by batch size."""

from typing import Annotated, Any

import typer

from ops.harness import flags
from ops.harness.boundary import InputError
from ops.harness.numbers import whole_numbers
from ops.harness.output import emit, progress, table


def bench_stages(
    bundle: flags.Bundle = None,
    config: flags.Config = None,
    methods: flags.Methods = None,
    prompts: flags.Prompts = None,
    ids: flags.Ids = None,
    limit: flags.Limit = 40,
    batches: Annotated[
        str, typer.Option("--batches", metavar="N,N", help="concurrent requests")
    ] = "1,2,4,8,16,32",
    max_tokens: flags.MaxTokens = 64,
    temperature: flags.Temperature = 0.0,
    dtype: flags.DtypeFlag = None,
    threads: flags.Threads = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Measure the time of each stage of a decode step, by batch size, as engines report it.

    Example: `specadapt bench stages --methods naive,ngram,eagle3 --batches 1,4,16`
    """
    import asyncio

    from ops.bench.stage_runs import StagesPlan, measure
    from ops.harness.machine import describe_machine
    from ops.harness.prompts import fingerprint, select
    from ops.harness.settings import load_config, resolve, with_baseline, with_dtype, with_room

    sizes = whole_numbers(batches, "--batches", 1)
    if max_tokens < 2:
        raise InputError("--max-tokens must be at least 2; the first token needs no decode step")
    asked = with_dtype(with_baseline(resolve(load_config(config), bundle, methods, dtype, threads)))
    if strange := [spec.name for spec in asked.methods if spec.engine != "torch"]:
        raise InputError(
            f"--methods: {strange[0]} is a vLLM method, and vLLM does not report stages"
        )
    setup = with_room(asked, max(sizes))
    chosen = select(prompts, ids, limit, seed)
    plan = StagesPlan(setup, chosen, sizes, max_tokens, temperature, seed)
    with progress() as bar:
        found, grown = asyncio.run(measure(plan, bar))
    figures = {
        "stages": found,
        "loaded_mib": grown,
        "settings": {
            **describe_machine(),
            "dtype": setup.engine.dtype,
            "threads": setup.engine.threads,
            "bundle": str(setup.bundle),
            "max_tokens": max_tokens,
            "temperature": temperature,
            "prompts": {"sha256": fingerprint(chosen), "count": len(chosen)},
        },
    }
    emit(figures, lambda: [_table(found)], json)


def _table(found: dict[str, dict[str, Any]]) -> Any:
    keys = ("step_ms", "draft_ms", "verify_ms", "sample_ms", "host_ms", "tokens_per_step")
    rows = [
        [name, batch, *(own[key] for key in keys)]
        for name, by_batch in found.items()
        for batch, own in by_batch.items()
    ]
    columns = ["method", "requests", "step", "draft", "verify", "sample", "host", "tokens a step"]
    return table("Milliseconds of a decode step", columns, rows)
