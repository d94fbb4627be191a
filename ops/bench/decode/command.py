"""`specadapt bench decode`: methods side by side with Hugging Face in one run."""

import asyncio
from typing import Annotated

from ops.common import flags
from ops.common.output import emit, progress


def bench_decode(  # noqa: PLR0913 - its parameters are flags
    bundle: flags.Bundle = None,
    config: flags.Config = None,
    methods: flags.Methods = None,
    prompts: flags.Prompts = None,
    ids: flags.Ids = None,
    limit: flags.Limit = 80,
    repeats: Annotated[
        int, flags.option("--repeats", "number of repeats; figures are medians over them", min=1)
    ] = 3,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    temperature: flags.Temperature = 0.0,
    seeded: Annotated[
        bool,
        flags.option(
            "--seeded",
            "send a seed with every request, so that all lossless methods give the same answer",
        ),
    ] = False,
    dtype: flags.DtypeFlag = None,
    concurrency: flags.Concurrency = 1,
    threads: flags.Threads = None,
    peers: Annotated[
        str | None,
        flags.option(
            "--peers",
            "other decoders of the target to compare with: hf (the reference at temperature "
            "0), hf-assisted, hf-prompt-lookup, hf-static, llamacpp, llamacpp-lookup, or none  "
            "[default: Hugging Face's but hf-static]",
            "A,B",
        ),
    ] = None,
    lockstep: Annotated[
        bool,
        flags.option(
            "--lockstep",
            "let methods of the torch engine take turns step by step, for machines whose "
            "speed changes; excludes peers",
        ),
    ] = False,
    quality: Annotated[
        bool,
        flags.option(
            "--quality",
            "also measure the distance of the answers from the target's distribution, and "
            "the perplexity of the prompts' responses in each precision",
        ),
    ] = False,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Measure decoding speed, acceptance and exactness of methods, next to other decoders.

    Reports tokens per second, speedups over plain decoding and Hugging Face, mean accepted tokens
    (MAT), the match rate, and the stages of a step. In every repeat, every method and mode answers
    every prompt. Needs torch, transformers and safetensors alone, and vLLM for its methods.

    Example: `specadapt bench decode --methods naive,ngram --limit 40 --json figures.json`
    """
    from ops.bench.decode.runs import Plan, figures_of, measure, tables_of
    from ops.common import settings
    from ops.common.boundary import InputError
    from ops.common.prompts import select

    configured = settings.load_config(config)
    asked = settings.with_dtype(settings.resolve(configured, bundle, methods, dtype, threads))
    setup = settings.with_room(settings.with_baseline(asked), concurrency)
    chosen = select(prompts, ids, limit, seed)
    if lockstep and peers not in (None, "none"):
        raise InputError("--lockstep: peers do not decode step by step; leave out --peers")
    none = lockstep or peers == "none"
    modes = () if none else None if peers is None else tuple(settings.names(peers, "--peers"))
    plan = Plan(
        *(setup, chosen, repeats, max_tokens, temperature, concurrency, seed, modes),
        seeded=seeded,
        lockstep=lockstep,
        quality=quality,
    )
    with progress() as bar:
        measured = asyncio.run(measure(plan, bar))
    figures = figures_of(plan, measured)
    emit(figures, lambda: tables_of(figures), json)
