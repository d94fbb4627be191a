"""`specadapt trace`: acceptance of every method on a set of prompts, without decoding with each."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from ops.harness import flags
from ops.harness.boundary import InputError
from ops.harness.output import emit, progress, table


def trace(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="folder of the trace")],
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
        int,
        typer.Option(
            "--batch", min=1, help="number of answers that are decoded and traced together"
        ),
    ] = 32,
    answers: Annotated[
        Path | None,
        typer.Option(
            "--answers",
            metavar="DIR",
            help="folder of an earlier trace whose answers are used instead of decoding",
        ),
    ] = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Record what every method drafts and gets accepted at each position of plain answers.

    Files are written as answers come; run the command again to continue. Another --temperature adds
    to the same folder. After drafters were trained, --answers reuses an earlier trace's answers.

    Example: `specadapt trace --out runs/trace --limit 600`
    """
    from ops.harness.prompts import select
    from ops.harness.settings import load_config, resolve, with_baseline, with_dtype
    from ops.tables.trace_answers import check_answers
    from ops.tables.trace_figures import summarise
    from ops.tables.trace_runs import TracePlan, run_trace
    from router.fit.speedup import BASELINE

    setup = with_baseline(resolve(load_config(config), bundle, methods, dtype, threads))
    if answers is not None:
        check_answers(answers, max_tokens)
    if BASELINE not in setup.names:
        raise InputError(f"--methods: add {BASELINE}, which decodes the answers")
    chosen = select(prompts, ids, limit, seed)
    plan = TracePlan(with_dtype(setup), chosen, max_tokens, temperature, batch, seed, answers)
    with progress() as bar:
        skipped = asyncio.run(run_trace(plan, out, bar))
    figures = {**summarise(out), "skipped_too_long": skipped}
    emit(figures, lambda: _tables(figures, out), json)


def _tables(figures: dict[str, Any], out: Path) -> list[Any]:
    by_method = figures["methods"]
    rows = [
        [name, heat, found["mat"], found["answers"], found["looping"]]
        for name, by_heat in by_method.items()
        for heat, found in by_heat.items()
    ]
    heats = sorted({heat for by_heat in by_method.values() for heat in by_heat}, key=float)
    domains = [
        [domain, heat, *(found.get(name, {}).get(heat, {}).get("mat") for name in by_method)]
        for domain, found in figures["by_domain"].items()
        for heat in heats
    ]
    columns = ["method", "temperature", "MAT", "answers", "looping"]
    return [
        table(f"Traces in {out}", columns, rows),
        table("MAT by domain", ["domain", "temperature", *by_method], domains),
    ]
