"""`specadapt bench step`: what a decode step spends its time on, and its distance to the limit."""

import os
from typing import Annotated

import typer

from ops.harness import flags
from ops.harness.output import emit, table

COLUMNS = {
    "tokens_per_step": "tokens",
    "step_ms": "step ms",
    "target_forward_ms": "target ms",
    "drafter_forwards_ms": "drafter ms",
    "outside_forward_share": "outside",
    "limit_ms": "limit ms",
    "over_limit": "×limit",
}


def bench_step(
    bundle: flags.Bundle = None,
    config: flags.Config = None,
    methods: flags.Methods = None,
    prompts: flags.Prompts = None,
    ids: flags.Ids = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="number of prompts, equal per domain")
    ] = 20,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    dtype: flags.DtypeFlag = None,
    threads: flags.Threads = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Profile decode steps: forward passes, operators, and memory traffic against bandwidth.

    "outside" is the share of step time outside of forward passes. "limit" is the time to read the
    weights once.

    Example: `specadapt bench step --methods naive,draft_verify --threads 2`
    """
    # read when torch is loaded: its profiler announces itself on standard error
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from ops.bench.step_profile import profile_steps
    from ops.harness.machine import describe_machine
    from ops.harness.prompts import fingerprint, select
    from ops.harness.settings import load_config, resolve, with_dtype

    setup = with_dtype(resolve(load_config(config), bundle, methods, dtype, threads))
    chosen = select(prompts, ids, limit, seed)
    measured = profile_steps(setup, chosen, max_tokens)
    settings = {
        **describe_machine(),
        "dtype": setup.engine.dtype,
        "threads": setup.engine.threads,
        "bundle": str(setup.bundle),
        "max_tokens": max_tokens,
        "prompts": {"sha256": fingerprint(chosen), "ids": [prompt.id for prompt in chosen]},
    }
    emit(
        {"methods": measured, "settings": settings},
        lambda: [
            table(
                "Decode steps",
                ["method", *COLUMNS.values()],
                [[name, *(m[column] for column in COLUMNS)] for name, m in measured.items()],
            ),
            *(
                table(
                    f"{name}: operators of a step",
                    ["operator", "calls", "microseconds"],
                    [list(operator.values()) for operator in m["operators"]],
                )
                for name, m in measured.items()
            ),
        ],
        json,
    )
