"""`specadapt trace`: draft tokens accepted at every position, from one plain decode per prompt."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ops.common import flags
from ops.common.boundary import InputError
from ops.common.output import emit, progress, table

if TYPE_CHECKING:
    from ops.common.decoding import EncodedPrompt
    from ops.common.settings import Setup
    from ops.routing_tables.traced import TracedAnswer
    from router.fit.profile import ProfileMeta

BATCH = 16
"""Answers that are decoded and traced together."""


def trace(  # noqa: PLR0913 - its parameters are flags
    out: Annotated[Path, flags.option("--out", "folder of the trace", "DIR")],
    with_bounds: Annotated[
        bool,
        flags.option(
            "--bounds", "time steps too, and compute the speedup of the combined drafters"
        ),
    ] = False,
    bundle: flags.Bundle = None,
    config: flags.Config = None,
    methods: flags.Methods = None,
    prompts: flags.Prompts = None,
    ids: flags.Ids = None,
    limit: flags.Limit = None,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    dtype: flags.DtypeFlag = None,
    threads: flags.Threads = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Record how many draft tokens of every method are accepted at each position of plain answers.

    Each prompt is decoded once, at temperature 0. Lines are written as answers come; run the
    command again to continue. --bounds computes the speedup if each step drafted exactly the
    accepted tokens of the best drafter.

    Example: `specadapt trace --out runs/trace --limit 60 --bounds`
    """
    from ops.common.decoding import encode
    from ops.common.prompts import select
    from ops.common.settings import load_config, resolve, with_baseline, with_dtype
    from ops.routing_tables.bounds import bounds, measure
    from ops.routing_tables.profile_store import meta_of
    from ops.routing_tables.traced import read_traces
    from router.fit.speedup import BASELINE
    from workers.bundle import load_bundle

    setup = with_dtype(with_baseline(resolve(load_config(config), bundle, methods, dtype, threads)))
    if BASELINE not in setup.names:
        raise InputError(f"--methods: add {BASELINE}, which decodes the answers")
    if with_bounds and setup.names == [BASELINE]:
        raise InputError("--methods: name a method that drafts, or leave --bounds out")
    family = load_bundle(setup.bundle)
    longest = setup.engine.max_context - max_tokens
    items, skipped = encode(family, select(prompts, ids, limit, seed), longest)
    meta = meta_of(setup, family, max_tokens)
    asyncio.run(_run(setup, meta, items, out))
    answers = read_traces(out)
    figures: dict[str, Any] = {
        "prompts": len(answers),
        "methods": {name: _method(name, answers) for name in setup.names},
        "bounds": None,
        "skipped_too_long": skipped,
        "settings": meta.model_dump(mode="json"),
    }
    if with_bounds:
        seconds = asyncio.run(measure(setup, items, max_tokens))
        figures["bounds"] = bounds(answers, seconds)
    emit(figures, lambda: _tables(figures, out), json)


def _method(name: str, answers: "Sequence[TracedAnswer]") -> dict[str, Any]:
    from ops.routing_tables.traced import mat

    domains = sorted({answer.domain for answer in answers})
    return {
        "mat": mat(answers, name),
        "by_domain": {d: mat([a for a in answers if a.domain == d], name) for d in domains},
    }


async def _run(
    setup: "Setup", meta: "ProfileMeta", items: "Sequence[EncodedPrompt]", out: Path
) -> None:
    """Trace the prompts that the folder lacks. Raises InputError if it has other settings."""
    from ops.routing_tables.traced import TracedAnswer, prepare
    from ops.routing_tables.tracer import Tracer
    from router.fit.speedup import BASELINE
    from workers.bundle import load_bundle

    done = prepare(out, meta)
    todo = sorted(
        (item for item in items if item.prompt.id not in done), key=lambda i: len(i.token_ids)
    )
    if not todo:
        return
    engine = setup.engine.model_copy(update={"max_batch": BATCH})
    tracer = Tracer(setup.methods, BASELINE, load_bundle(setup.bundle), engine, meta.max_tokens)
    drafting = [name for name in setup.names if name != BASELINE]
    with progress() as bar, (out / "trace.jsonl").open("a", encoding="utf-8") as file:
        task = bar.add_task("prompts", total=len(todo))
        for start in range(0, len(todo), BATCH):
            batch = todo[start : start + BATCH]
            texts = await tracer.texts([item.token_ids for item in batch])
            found = {name: await tracer.trace(name, texts) for name in drafting}
            for at, (item, text) in enumerate(zip(batch, texts, strict=True)):
                row = TracedAnswer(
                    prompt_id=item.prompt.id,
                    domain=item.prompt.domain,
                    prompt=item.token_ids,
                    answer=text.answer,
                    accepted={name: accepted[at] for name, accepted in found.items()},
                )
                file.write(row.model_dump_json() + "\n")
            file.flush()
            bar.advance(task, len(batch))


def _tables(figures: Mapping[str, Any], out: Path) -> list[Any]:
    by_method = figures["methods"]
    domains = list(next(iter(by_method.values()))["by_domain"])
    rows = [[n, found["mat"], *found["by_domain"].values()] for n, found in by_method.items()]
    title = f"{out}: output tokens per target step over {figures['prompts']} prompts"
    shown = [table(title, ["method", "all", *domains], rows)]
    if (found := figures["bounds"]) is not None:
        rows = [[n, value, found["oracle_length"][n]] for n, value in found["fixed"].items()]
        rows += [[n, found[n], None] for n in ("best_of_prompt", "oracle_combine")]
        title = f"Speedup after the first token over {found['answers']} answers"
        shown.append(table(title, ["method", "as it is", "oracle length"], rows))
    return shown
