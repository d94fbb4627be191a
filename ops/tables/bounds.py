"""`specadapt bench bounds`: how far speculation could go, if it were known what is kept."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ops.harness import flags
from ops.harness.boundary import InputError
from ops.harness.output import emit, table

TIMED = 8
"""Number of prompts whose steps are timed."""


def bench_bounds(
    traces: Annotated[
        Path, typer.Option("--traces", metavar="DIR", help="folder of `specadapt trace`")
    ],
    bundle: flags.Bundle = None,
    config: flags.Config = None,
    methods: flags.Methods = None,
    ids: flags.Ids = None,
    max_tokens: flags.MaxTokens = 64,
    temperature: flags.Temperature = 0.0,
    dtype: flags.DtypeFlag = None,
    threads: flags.Threads = None,
    decoded: Annotated[
        Path | None,
        typer.Option(
            "--decoded", metavar="FILE", help="JSON of a `bench decode` of the same prompts"
        ),
    ] = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Compute upper bounds on the speedup of speculation over traced answers.

    The bounds draft exactly the tokens that are accepted: by each drafter, by the best drafter
    (Oracle_Combine), or in the cheapest schedule of all. Acceptance comes from traces, step times
    are measured with one request at a time, and the first token does not count. --decoded adds the
    share of the bounds that decoding reached.

    Example: `specadapt bench bounds --traces runs/trace --methods naive,suffix,medusa,eagle3`
    """
    from ops.harness.machine import describe_machine
    from ops.harness.prompts import Prompt, read_ids
    from ops.harness.settings import load_config, resolve, with_baseline, with_dtype
    from ops.tables.bounds_costs import measure
    from ops.tables.bounds_figures import answers_of, bounds, speedups_of
    from ops.tables.bounds_reached import reached
    from ops.tables.trace_store import read_meta, read_rows
    from router.fit.speedup import BASELINE
    from workers.bundle import load_bundle

    asked = resolve(load_config(config), bundle, methods, dtype, threads)
    setup = with_dtype(with_baseline(asked))
    family = load_bundle(setup.bundle)
    known = read_meta(traces).measured_under
    if known.bundle != (now := f"{family.name}@{family.content_hash}"):
        raise InputError(f"--traces: made with bundle {known.bundle}, not {now}")
    drafters = [name for name in setup.names if name != BASELINE]
    wanted = set(read_ids(ids)) if ids else None
    rows = [
        row
        for row in read_rows(traces, [("temperature", "=", temperature)])
        if wanted is None or row["prompt_id"] in wanted
    ]
    answers, levels = answers_of(rows, drafters)
    texts = {row["prompt_id"]: (row["domain"], row["text"]) for row in rows}
    step = max(1, len(answers) // TIMED)
    timed = [
        Prompt(a.prompt_id, texts[a.prompt_id][0], ({"role": "user", "content": text},))
        for a in answers[::step][:TIMED]
        for text in [texts[a.prompt_id][1]]
    ]
    seconds = measure(setup, timed, max_tokens)
    speedups = speedups_of(answers, levels, seconds)
    figures = bounds(answers, levels, speedups, seed)
    if decoded is not None:
        figures["reached"] = reached(decoded, answers, speedups, set(texts), seed)
    figures["settings"] = {
        **describe_machine(),
        "dtype": setup.engine.dtype,
        "threads": setup.engine.threads,
        "bundle": now,
        "temperature": temperature,
        "prompts": {"ids": sorted(texts)},
        "step_ms": {name: 1e3 * found for name, found in seconds.whole.items()},
        "drafting_ms": {name: 1e3 * found for name, found in seconds.drafting.items()},
        "forward_ms": dict(
            zip(map(int, seconds.rows), (1e3 * seconds.forwards).tolist(), strict=True)
        ),
    }
    emit(figures, lambda: _tables(figures), json)


def _tables(figures: Mapping[str, Any]) -> list[Any]:
    together = list(next(iter(figures["by_domain"].values())))[1 + len(figures["fixed"]) :]
    ends = figures["ci95"]
    rows = [
        [name, value, *ends[name], figures["oracle_length"][name]]
        for name, value in figures["fixed"].items()
    ]
    rows += [[name, figures[name], *ends[name], None] for name in together]
    shown = [
        table(
            f"{figures['answers']} answers: speedup after the first token",
            ["method", "as it is", "low", "high", "oracle length"],
            rows,
        ),
        table(
            "Oracle_Combine of drafters",
            ["drafters", "speedup", "low", "high"],
            [[name, f["speedup"], *f["ci95"]] for name, f in figures["combined"].items()],
        ),
    ]
    columns = ["domain", "answers", *figures["fixed"], *together]
    rows = [[name, *values.values()] for name, values in figures["by_domain"].items()]
    shown.append(table("By domain", columns, rows))
    return [*shown, *_reached(figures["reached"])] if "reached" in figures else shown


def _reached(found: Mapping[str, Any]) -> list[Any]:
    names = ["speedup", "best_of_prompt", "oracle_combine", "best_schedule"]
    rows = [
        [method, own["answers"], *(f"{own[n]:.2f} ({_ends(own, n)})" for n in names)]
        for method, own in found.items()
    ]
    domains = dict.fromkeys(domain for own in found.values() for domain in own["by_domain"])
    shares = [
        [d, *(own["by_domain"].get(d, {}).get("oracle_combine") for own in found.values())]
        for d in domains
    ]
    title = "Reached by decoding, and the share of the bounds"
    return [
        table(title, ["method", "answers", *names], rows),
        table("Share of Oracle_Combine by domain", ["domain", *found], shares),
    ]


def _ends(own: Mapping[str, Any], name: str) -> str:
    low, high = own["ci95"][name]
    return f"{low:.2f} to {high:.2f}"
