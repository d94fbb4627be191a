"""`specadapt bench rules`: rules of others for trees and stops beside ours, on recorded drafts."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ops.cli import flags
from ops.cli.boundary import InputError
from ops.cli.output import emit, progress, table

FIGURES = ("speedup", "tokens_per_step", "expected_accepted", "accepted", "nodes", "levels")


def bench_rules(
    method: Annotated[
        str, typer.Option("--method", metavar="M", help="whose drafter is recorded")
    ] = "eagle3",
    bundle: flags.Bundle = None,
    config: flags.Config = None,
    prompts: flags.Prompts = None,
    ids: flags.Ids = None,
    limit: Annotated[int, typer.Option("--limit", min=2, help="prompts, equal per domain")] = 40,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=8, help="of an answer")] = 64,
    decoded: Annotated[
        int, typer.Option("--decoded", min=1, help="prompts that lookahead decodes")
    ] = 10,
    records: Annotated[
        Path | None,
        typer.Option("--records", metavar="DIR", help="keeps drafts, and goes on where it stopped"),
    ] = None,
    costs: Annotated[
        Path | None,
        typer.Option(
            "--costs", metavar="FILE", help="seconds of steps: read, or measured and written"
        ),
    ] = None,
    time_only: Annotated[
        bool, typer.Option("--time-only", help="measure --costs and end: for a quiet machine")
    ] = False,
    dtype: flags.DtypeFlag = None,
    threads: flags.Threads = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Trees and stops of others (OPT-Tree, Sequoia, DySpec, AdaEDL, SpecDec++) beside our own, on
    what a learned drafter says at every position of plain answers; and what layer skip and
    lookahead decoding would bring.

    Answers and drafts are greedy and in float32, seconds in --dtype, one request at a time. A rule
    gets the settings that are the fastest on every other prompt and is judged on the rest.

    Example: `specadapt bench rules --records runs/drafts --costs runs/costs.json --json rules.json`
    """
    from ops.cli.settings import load_config, resolve, with_dtype
    from ops.measure.decoding import encode
    from ops.measure.machine import describe_machine
    from ops.measure.prompts import fingerprint, select
    from ops.rules import runs
    from workers.bundle import load_bundle

    setup = resolve(load_config(config), bundle, method, dtype, threads)
    if len(setup.methods) != 1:
        raise InputError(f"--method: give one method, not {method!r}")
    if time_only and costs is None:
        raise InputError("--time-only: name the file to write with --costs")
    family = load_bundle(setup.bundle)
    chosen = select(prompts, ids, limit, seed)
    encoded, _ = encode(family, chosen, setup.engine.max_context - max_tokens)
    task = runs.RulesTask(family, setup.engine, setup.methods[0], encoded, max_tokens, seed)

    if costs is not None and costs.is_file() and not time_only:
        found = runs.read_costs(costs)
    else:
        timed = runs.RulesTask(
            family, with_dtype(setup).engine, setup.methods[0], encoded, max_tokens, seed
        )
        found = asyncio.run(runs.measured(timed))
        found["settings"] |= describe_machine()
        if costs is not None:
            runs.write_costs(costs, found)
    if time_only:
        emit(found, lambda: [costs_table(found)], json)
        return
    with progress() as bar:
        figures = asyncio.run(runs.judged(task, found, records, decoded, bar))
    figures["costs"] = found
    figures["settings"] = {
        **describe_machine(),
        "dtype": "float32",
        "threads": setup.engine.threads,
        "bundle": f"{family.name}@{family.content_hash}",
        "method": setup.methods[0].name,
        "max_tokens": max_tokens,
        "prompts": {"sha256": fingerprint(chosen), "ids": [prompt.id for prompt in chosen]},
    }
    emit(figures, lambda: tables_of(figures), json)


def tables_of(figures: Mapping[str, Any]) -> list[Any]:
    """The rules, all together and by domain; layer skip; lookahead; what it was reckoned with."""
    rules = figures["rules"]
    domains = list(next(iter(rules.values()))["by_domain"])
    skipped, ahead = figures["layer_skip"], figures["lookahead"]
    settings = {
        name: ", ".join(f"{key} {value}" for key, value in found["settings"].items())
        for name, found in rules.items()
    }
    return [
        table(
            f"Rules on {figures['answers']['judged']} answers, by the step-cost model",
            [
                "rule",
                "settings",
                *(name.replace("_", " ") for name in FIGURES),
                "over ours",
                "from",
                "to",
            ],
            [
                [
                    *(name, settings[name], *(found[key] for key in FIGURES)),
                    *(found["over_ours"]["ratio"], *found["over_ours"]["ci95"]),
                ]
                for name, found in rules.items()
            ],
        ),
        table(
            "Speedup by domain",
            ["rule", *domains],
            [
                [name, *(found["by_domain"][domain]["speedup"] for domain in domains)]
                for name, found in rules.items()
            ],
        ),
        table(
            "The first layers draft: what agrees, two and three in a row, speedup by draft tokens",
            [
                "layers",
                "agrees",
                "2 in a row",
                "3 in a row",
                *next(iter(skipped.values()))["speedup"],
            ],
            [
                [after, found["agrees"], *found["survival"][1:3], *found["speedup"].values()]
                for after, found in skipped.items()
            ],
        ),
        table(
            "Lookahead, decoded; speedup by the step-cost model",
            ["drafter", *next(iter(ahead.values()))],
            [[name, *found.values()] for name, found in ahead.items()],
        ),
        costs_table(figures["costs"]),
    ]


def costs_table(costs: Mapping[str, Any]) -> Any:
    """What steps and levels take."""
    levels = {f"a level of {rows}": ms for rows, ms in costs["level_ms"].items()}
    rows = {f"a step of {rows}": ms for rows, ms in costs["step_ms"].items()}
    rows |= {"the first level": costs["first_level_ms"], **levels, "LM head": costs["read_out_ms"]}
    rows |= {f"{name}, a whole step": ms for name, ms in costs["measured_step_ms"].items()}
    return table("Milliseconds, by rows", ["what", "ms"], [[*row] for row in rows.items()])
