"""`specadapt tune-tree`: the token tree that decodes fastest on this machine."""

import asyncio
from typing import Annotated, Any

import typer

from ops.harness import flags
from ops.harness.boundary import InputError
from ops.harness.output import emit, progress, table


def tune_tree(
    method: Annotated[
        str, typer.Option("--method", metavar="M", help="method whose drafter fills the tree")
    ],
    bundle: flags.Bundle = None,
    config: flags.Config = None,
    prompts: flags.Prompts = None,
    ids: flags.Ids = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="number of prompts, equal per domain")
    ] = 18,
    levels: Annotated[
        int, typer.Option("--levels", min=1, max=12, help="maximum depth of the tree")
    ] = 6,
    max_tokens: flags.MaxTokens = 64,
    temperature: flags.Temperature = 0.0,
    dtype: flags.DtypeFlag = None,
    threads: flags.Threads = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Find the token tree with the highest throughput for a method's drafter.

    Records how the drafter ranks the tokens of real answers, times steps by tree size, plans a
    static tree and decodes with it. For a method on EAGLE-2's dynamic tree, tries values of
    `nodes`, `k` and depth instead. Prints an entry for the configuration's `methods`.

    Example: `specadapt tune-tree --method medusa --prompts mine.jsonl --json tree.json`
    """
    from ops.harness.decoding import encode
    from ops.harness.machine import describe_machine
    from ops.harness.prompts import fingerprint, select
    from ops.harness.settings import load_config, resolve, with_dtype
    from ops.models.tune.tree_choice import tune_dynamic, tune_static
    from ops.models.tune.tree_runs import TreeTask
    from workers.bundle import load_bundle

    setup = with_dtype(resolve(load_config(config), bundle, method, dtype, threads))
    if len(setup.methods) != 1:
        raise InputError(f"--method: give one method, not {method!r}")
    family = load_bundle(setup.bundle)
    chosen = select(prompts, ids, limit, seed)
    encoded, _ = encode(family, chosen, setup.engine.max_context - max_tokens)
    task = TreeTask(
        family, setup.engine, setup.methods[0], encoded, max_tokens, temperature, levels, seed
    )
    tune = tune_dynamic if task.method.tree == "eagle2" else tune_static
    with progress() as bar:
        figures = asyncio.run(_within_loop(tune, task, bar))
    figures["settings"] = {
        **describe_machine(),
        "dtype": setup.engine.dtype,
        "threads": setup.engine.threads,
        "bundle": f"{family.name}@{family.content_hash}",
        "max_tokens": max_tokens,
        "temperature": temperature,
        "prompts": {"sha256": fingerprint(chosen), "ids": [prompt.id for prompt in chosen]},
    }
    emit(figures, lambda: tables_of(figures), json)


async def _within_loop(tune: Any, *arguments: Any) -> dict[str, Any]:
    """Streams belong to a running event loop."""
    figures: dict[str, Any] = tune(*arguments)
    return figures


def tables_of(figures: dict[str, Any]) -> list[Any]:
    """Return the chosen tree, its measurements, and the entry for the configuration."""
    import yaml

    measured = figures["measured"]
    columns = ["tokens_per_step", "tokens_per_s", "speedup_vs_naive"]
    tables = [
        table(
            f"{figures['method']}: {figures['nodes']} nodes, {figures['depth']} levels",
            ["method", "tokens a step", "tokens/s, decoding", "× naive"],
            [[name, *(row[column] for column in columns)] for name, row in measured.items()],
        )
    ]
    if "by_depth" in figures:
        rows = sorted(figures["by_depth"], key=lambda row: row["depth"])
        tables.append(table("Best tree by depth", list(rows[0]), [[*row.values()] for row in rows]))
        ranks = [[f"level {d}", *row] for d, row in enumerate(figures["per_rank_acceptance"], 1)]
        names = ["", *(f"rank {rank}" for rank in range(len(ranks[0]) - 1))]
        tables.append(table("Accepted, of the steps that got so far", names, ranks))
    entry = yaml.safe_dump([figures["entry"]], sort_keys=False, width=90)
    return [*tables, f"For the configuration:\n\nmethods:\n{entry}"]
