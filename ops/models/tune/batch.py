"""`specadapt tune-batch`: how much to draft at which batch size, on this machine."""

import asyncio
from typing import Annotated, Any

import typer

from ops.harness import flags
from ops.harness.numbers import whole_numbers
from ops.harness.output import emit, progress, table

BATCHES = "1,2,4,8"


def tune_batch(
    methods: Annotated[str, typer.Option("--methods", metavar="M,M", help="methods that draft")],
    batches: Annotated[
        str, typer.Option("--batches", metavar="N,N", help="batch sizes, in sequences")
    ] = BATCHES,
    gammas: Annotated[
        str | None,
        typer.Option(
            "--gammas",
            metavar="N,N",
            help="draft tokens per step to try, with the method's own; 0 is plain decoding  "
            "[default: 0,1,2,4,6]",
        ),
    ] = None,
    bundle: flags.Bundle = None,
    config: flags.Config = None,
    prompts: flags.Prompts = None,
    ids: flags.Ids = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="number of prompts, equal per domain")
    ] = 18,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, help="number of rounds of all measurements")
    ] = 3,
    max_tokens: flags.MaxTokens = 64,
    temperature: flags.Temperature = 0.0,
    dtype: flags.DtypeFlag = None,
    threads: flags.Threads = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Find the number of draft tokens with the highest throughput for each batch size.

    Counts tokens per step on real answers, times steps of every size next to plain decoding, plans
    a schedule and decodes with it. Prints an entry for the configuration's `methods`. A vLLM method
    is loaded once for each number of draft tokens, which takes up to a minute each.

    Example: `specadapt tune-batch --methods draft_verify --batches 1,4,8 --json batch.json`
    """
    from ops.harness.decoding import encode
    from ops.harness.machine import describe_machine
    from ops.harness.prompts import fingerprint, select
    from ops.harness.settings import load_config, resolve, with_dtype, with_places
    from ops.models.tune.batch_choice import gammas_for, tune
    from ops.models.tune.batch_runs import BatchTask
    from workers.bundle import load_bundle

    sizes = whole_numbers(batches, "--batches", 1)
    asked = None if gammas is None else whole_numbers(gammas, "--gammas", 0)
    setup = with_dtype(resolve(load_config(config), bundle, methods, dtype, threads))
    setup = with_places(setup, sizes[-1])
    family = load_bundle(setup.bundle)
    chosen = select(prompts, ids, limit, seed)
    encoded, _ = encode(family, chosen, setup.engine.max_context - max_tokens)
    tasks = [
        BatchTask(
            setup,
            family,
            method,
            encoded,
            sizes,
            gammas_for(method, asked),
            max_tokens,
            temperature,
            rounds,
            seed,
        )
        for method in setup.methods
    ]
    with progress() as bar:
        tuned = asyncio.run(tune(tasks, bar))
    figures: dict[str, Any] = {
        "methods": tuned,
        "settings": {
            **describe_machine(),
            "dtype": setup.engine.dtype,
            "threads": setup.engine.threads,
            "bundle": f"{family.name}@{family.content_hash}",
            "max_tokens": max_tokens,
            "temperature": temperature,
            "rounds": rounds,
            "prompts": {"sha256": fingerprint(chosen), "ids": [prompt.id for prompt in chosen]},
        },
    }
    emit(figures, lambda: tables_of(figures), json)


def tables_of(figures: dict[str, Any]) -> list[Any]:
    """Return tables by method: tokens/s by batch and gamma, the schedule's result, its entry."""
    import yaml

    shown: list[Any] = []
    for name, tuned in figures["methods"].items():
        lengths = [row["gamma"] for row in tuned["acceptance"]]
        rates = {(row["batch"], row["gamma"]): row["tokens_per_s"] for row in tuned["grid"]}
        plain = {row["batch"]: row["tokens_per_s"] for row in tuned["plain"]}
        shown += [
            table(
                f"{name}: tokens/s of the batch, prompts read, by draft tokens a step",
                ["batch", "plain", *(str(gamma) for gamma in lengths), "planned"],
                [
                    [batch, rate, *(rates[batch, gamma] for gamma in lengths), planned]
                    for (batch, rate), planned in zip(plain.items(), tuned["planned"], strict=True)
                ],
            ),
            table(
                "Tokens a step emits",
                ["draft tokens", "tokens a step"],
                [[row["gamma"], row["tokens_per_step"]] for row in tuned["acceptance"]],
            ),
            table(
                "Whole answers, tokens/s with prompts read",
                ["batch", *tuned["measured"]],
                [
                    [batch, *(rates_of[str(batch)] for rates_of in tuned["measured"].values())]
                    for batch in plain
                ],
            ),
            f"num_speculative_tokens_per_batch_size: {tuned['ranges']}",
        ]
    entries = [tuned["entry"] for tuned in figures["methods"].values()]
    entry = yaml.safe_dump(entries, sort_keys=False, width=90, default_flow_style=None)
    return [*shown, f"For the configuration:\n\nmethods:\n{entry}"]
