"""`specadapt trace`: acceptance of every method on a set of prompts, without decoding with each."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from ops.cli import flags
from ops.cli.boundary import InputError
from ops.cli.output import emit, progress, table


def trace(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="the trace's folder")],
    bundle: flags.Bundle = None,
    config: flags.Config = None,
    methods: flags.Methods = None,
    prompts: flags.Prompts = None,
    ids: flags.Ids = None,
    limit: flags.Limit = None,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    temperature: flags.Temperature = 0.0,
    dtype: flags.DtypeFlag = None,
    threads: flags.Threads = None,
    batch: Annotated[
        int, typer.Option("--batch", min=1, help="answers that are made and traced together")
    ] = 32,
    answers: Annotated[
        Path | None,
        typer.Option("--answers", metavar="DIR", help="take the answers of this trace's prompts"),
    ] = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Answer every prompt plainly, then let each method draft at every position of the answer.

    Files are added as they come; the same command again goes on where the last one stopped, and
    another --temperature adds to the same folder. After a training the target's answers are what
    they were: --answers takes them from an earlier trace.

    Example: `specadapt trace --out runs/trace --limit 600`
    """
    from ops.cli.settings import load_config, resolve, with_baseline, with_dtype
    from ops.measure.prompts import select
    from ops.trace.figures import summarise
    from ops.trace.runs import TracePlan, run_trace
    from router.speedup import BASELINE

    setup = with_dtype(with_baseline(resolve(load_config(config), bundle, methods, dtype, threads)))
    if BASELINE not in setup.names:
        raise InputError(f"--methods: answers are made by {BASELINE}, of our own engine; name it")
    chosen = select(prompts, ids, limit, seed)
    plan = TracePlan(setup, chosen, max_tokens, temperature, batch, seed, answers)
    with progress() as bar:
        skipped = asyncio.run(run_trace(plan, out, bar))
    figures = {**summarise(out), "skipped_too_long": skipped}
    rows = [
        [name, heat, found["mat"], found["answers"]]
        for name, by_temperature in figures["methods"].items()
        for heat, found in by_temperature.items()
    ]
    emit(
        figures,
        lambda: [table(f"Traces in {out}", ["method", "temperature", "MAT", "answers"], rows)],
        json,
    )
