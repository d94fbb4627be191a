"""`specadapt bench precision`: what the target's precision costs in quality and gives in speed."""

from typing import Annotated

import typer

from ops.cli import flags
from ops.cli.boundary import InputError
from ops.cli.output import emit, progress, table

PRECISIONS = ("float32", "bfloat16", "int8")


def bench_precision(
    bundle: flags.Bundle = None,
    config: flags.Config = None,
    dtypes: Annotated[
        str, typer.Option("--dtypes", metavar="A,B", help="the first is what others are over")
    ] = "bfloat16,float32,int8",
    prompts: flags.Prompts = None,
    ids: flags.Ids = None,
    limit: flags.Limit = None,
    longest: Annotated[
        int, typer.Option("--longest", min=2, help="tokens of prompt and response at most")
    ] = 512,
    threads: flags.Threads = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """The target in several precisions, on a CPU: perplexity of given responses, how often its
    favourite token stays the same, and the time of its forwards over 1 to 16 tokens.

    Example: `specadapt bench precision --prompts held.jsonl --limit 200`
    """
    import torch

    from ops.cli.settings import load_config, names, resolve
    from ops.measure.forwards import load_target
    from ops.measure.machine import describe_machine
    from ops.measure.prompts import fingerprint, select
    from ops.precision.runs import (
        ROWS,
        figures_of,
        forward_milliseconds,
        given_answers,
        read,
    )
    from workers.bundle import load_bundle

    wanted = names(dtypes, "--dtypes")
    unknown = [name for name in wanted if name not in PRECISIONS]
    if unknown:
        raise InputError(f"--dtypes: {unknown[0]!r} is none of {', '.join(PRECISIONS)}")
    setup = resolve(load_config(config), bundle, "naive", None, threads)
    torch.set_num_threads(setup.engine.threads)
    family = load_bundle(setup.bundle)
    chosen = select(prompts, ids, limit, seed)
    answers = given_answers(family, chosen, longest)
    models = {name: load_target(family, name) for name in wanted}
    with progress() as bar:
        readings = {name: read(model, answers, bar, name) for name, model in models.items()}
    times = forward_milliseconds(models)
    first = readings[wanted[0]]
    figures = {
        "precisions": {
            name: {**figures_of(answers, first, readings[name], seed), "forward_ms": times[name]}
            for name in wanted
        },
        "settings": {
            **describe_machine(),
            "threads": setup.engine.threads,
            "bundle": f"{family.name}@{family.content_hash}",
            "answers": len(answers),
            "answer_tokens": sum(len(given.answer) for given in answers),
            "longest": longest,
            "prompts": fingerprint(chosen),
        },
    }
    columns = ["perplexity", f"over {wanted[0]}", "same favourite", *(f"{n} ms" for n in ROWS)]
    rows = [
        [
            name,
            found["perplexity"],
            found["perplexity_ratio"],
            found["same_favourite"],
            *found["forward_ms"].values(),
        ]
        for name, found in figures["precisions"].items()
    ]
    emit(figures, lambda: [table("Precisions", ["dtype", *columns], rows)], json)
