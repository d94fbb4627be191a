"""`specadapt bench quality`: lossy methods at several settings of their dial."""

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from ops.harness import flags
from ops.harness.numbers import numbers
from ops.harness.output import cell, emit, progress, table

COLUMNS = {
    "speedup_vs_naive": "×naive",
    "mat": "MAT",
    "match_rate": "match",
    "tokens_before_divergence": "before",
    "excess_nats": "excess",
    "nats_over_plain": "over plain",
    "kl_at_least": "KL ≥",
    "as_if_temperature": "as if at",
    "accuracy": "right",
    "same_number": "same no.",
    "loop_rate": "loops",
}
INTERVALS = ("speedup_vs_naive", "excess_nats", "kl_at_least", "accuracy", "same_number")


def bench_quality(
    bundle: flags.Bundle = None,
    config: flags.Config = None,
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods",
            metavar="A,B",
            help="methods to measure, lossless ones unchanged  [default: the lossy methods that "
            "the bundle supports]",
        ),
    ] = None,
    dial: Annotated[
        list[str] | None,
        typer.Option(
            "--dial",
            metavar="SETTING=A,B",
            help="values of a setting: epsilon or delta (typical), threshold (fuzzy); repeatable",
        ),
    ] = None,
    prompts: flags.Prompts = None,
    ids: flags.Ids = None,
    limit: flags.Limit = 40,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    temperatures: Annotated[
        str,
        typer.Option(
            "--temperatures", metavar="A,B", help="sampling temperatures; 0 decodes greedily"
        ),
    ] = "0,0.8",
    perplexity: Annotated[
        str | None,
        typer.Option(
            "--perplexity",
            metavar="A,B",
            help="compare only the perplexity of the prompts' responses under the target in "
            "these precisions (float32, bfloat16, q4, int8)",
        ),
    ] = None,
    dtype: flags.DtypeFlag = None,
    concurrency: flags.Concurrency = 1,
    threads: flags.Threads = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Measure what lossy methods lose in quality at each setting of their dial.

    Reports the distance of the answers from the target's distribution, how often they equal plain
    decoding's, and their accuracy on prompts whose `response` has a final number after `####`. Each
    method is compared with its own drafts under lossless verification.

    Example: `specadapt bench quality --prompts held.jsonl --dial threshold=0.1,0.4`
    """
    import asyncio
    from dataclasses import replace

    from ops.bench.quality.accuracy import reference_number
    from ops.bench.quality.dials import lossy_methods, parse_dials, variants_of
    from ops.bench.quality.figures import figures_at
    from ops.bench.quality.runs import QualityPlan, measure
    from ops.harness.prompts import select
    from ops.harness.settings import load_config, resolve, with_dtype, with_room
    from router.fit.speedup import BASELINE
    from workers.bundle import load_bundle

    heats = numbers(
        temperatures, "--temperatures", "numbers from 0 to 2", lambda heat: 0.0 <= heat <= 2.0
    )
    dials = parse_dials(dial or ())
    settings = load_config(config)
    setup = resolve(settings, bundle, methods, dtype, threads)
    if perplexity is not None:
        compared = _perplexity(setup, select(prompts, ids, limit, seed), perplexity, seed)
        emit(compared, lambda: [_precisions(compared["precisions"])], json)
        return
    if methods is None and "methods" not in settings.model_fields_set:
        setup = replace(setup, methods=lossy_methods(load_bundle(setup.bundle)))
    variants = variants_of(setup.methods, dials)
    setup = with_dtype(replace(setup, methods=tuple(v.spec for v in variants)))
    chosen = select(prompts, ids, limit, seed)
    plan = QualityPlan(
        *(with_room(setup, concurrency), variants, chosen, heats, max_tokens, concurrency, seed)
    )
    with progress() as bar:
        answers, skipped = asyncio.run(measure(plan, bar))
    solved = {prompt.id: reference_number(prompt.response) for prompt in chosen}
    right = {key: number for key, number in solved.items() if number is not None}
    quality: dict[str, dict[str, Any]] = {
        variant.spec.name: {
            "method": variant.method,
            "dial": variant.dial,
            "value": variant.value,
            "lossless": variant.spec.lossless,
            "by_temperature": {
                f"{heat:g}": figures_at(heat, of[variant.spec.name], of[BASELINE], right, seed)
                for heat, of in answers.items()
                if variant.spec.name in of
            },
        }
        for variant in variants
    }
    figures: dict[str, Any] = {"quality": quality, "settings": _settings(plan, skipped)}
    emit(figures, lambda: _tables(quality), json)


def _perplexity(setup: Any, chosen: Any, listed: str, seed: int) -> dict[str, Any]:
    import torch

    from ops.bench.quality.perplexity import compare_precisions
    from ops.harness.machine import describe_machine
    from ops.harness.prompts import fingerprint
    from ops.harness.settings import names
    from workers.bundle import load_bundle

    family = load_bundle(setup.bundle)
    torch.set_num_threads(setup.engine.threads)
    with progress() as bar:
        found = compare_precisions(family, chosen, names(listed, "--perplexity"), seed, bar)
    settings = {
        **describe_machine(),
        "threads": setup.engine.threads,
        "bundle": f"{family.name}@{family.content_hash}",
        "prompts": {"sha256": fingerprint(chosen), "ids": [prompt.id for prompt in chosen]},
    }
    return {**found, "settings": settings}


def _precisions(found: dict[str, Any]) -> Any:
    first = next(iter(found))
    rows = [
        [
            name,
            own["perplexity"],
            own["perplexity_ratio"],
            _interval(own, "perplexity_ratio"),
            own["same_favourite"],
        ]
        for name, own in found.items()
    ]
    columns = ["dtype", "perplexity", f"over {first}", "95%", "same favourite"]
    return table("Perplexity of the responses", columns, rows)


def _settings(plan: Any, skipped: int) -> dict[str, Any]:
    from ops.harness.machine import describe_machine
    from ops.harness.prompts import fingerprint

    return {
        **describe_machine(),
        "dtype": plan.setup.engine.dtype,
        "threads": plan.setup.engine.threads,
        "bundle": str(plan.setup.bundle),
        "methods": {v.spec.name: v.spec.settings_hash() for v in plan.variants},
        "max_tokens": plan.max_tokens,
        "concurrency": plan.concurrency,
        "seed": plan.seed,
        "prompts": {
            "sha256": fingerprint(plan.prompts),
            "skipped_too_long": skipped,
            "ids": [prompt.id for prompt in plan.prompts],
        },
    }


def _tables(found: dict[str, Any]) -> Iterable[Any]:
    """Yield, for each temperature, the figures and their intervals."""
    for heat in dict.fromkeys(heat for own in found.values() for heat in own["by_temperature"]):
        at = {
            (own["method"], _setting(own)): own["by_temperature"][heat]
            for own in found.values()
            if heat in own["by_temperature"]
        }
        for title, names, show in (
            (f"Temperature {heat}", COLUMNS, lambda own, key: own[key]),
            (f"Temperature {heat}, 95% intervals", INTERVALS, _interval),
        ):
            keys = [key for key in names if any(own[key] is not None for own in at.values())]
            columns = ["method", "setting", *(COLUMNS[key] for key in keys)]
            yield table(title, columns, [[*n, *(show(a, k) for k in keys)] for n, a in at.items()])


def _setting(own: dict[str, Any]) -> str:
    if own["lossless"]:
        return "lossless"
    return "as it is" if own["dial"] is None else f"{own['dial']} {own['value']:g}"


def _interval(own: dict[str, Any], key: str) -> str | None:
    ends = own[f"{key}_ci95"]
    return f"{cell(ends[0])} to {cell(ends[1])}" if ends else None
