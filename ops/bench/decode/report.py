"""The JSON and the tables of `bench decode`."""

import statistics
from collections.abc import Iterable
from typing import Any

from rich.console import Group

from ops.bench.decode.quality import quality_tables
from ops.bench.decode.runs import Measured, Plan
from ops.bench.stats import (
    STAGES,
    domain_mean,
    group,
    match_figures,
    rates,
    speedup_key,
    summarise,
)
from ops.harness.machine import describe_machine
from ops.harness.output import table
from ops.harness.prompts import fingerprint
from router.fit.speedup import MIN_TOKENS, baseline_of
from schemas.method import PLAIN_METHODS

COLUMNS = {
    "tokens_per_s": "tok/s",
    **{speedup_key(name): f"×{name}" for name in PLAIN_METHODS},
    "speedup_vs_hf": "×HF",
    "mat": "MAT",
    "match_rate": "match",
    "loop_rate": "loops",
    "prompts": "prompts",
}


def figures_of(plan: Plan, measured: Measured) -> dict[str, Any]:
    """Return the figures that `--json` writes."""
    return {
        "methods": {name: _method(name, plan, measured) for name in plan.setup.names},
        "peers": {
            name: {"tokens_per_s": domain_mean(rates(measured.runs[name]))}
            for name in measured.peers
        },
        **({"quality": measured.quality} if plan.quality else {}),
        "settings": _settings(plan, measured),
    }


def tables_of(figures: dict[str, Any]) -> Iterable[Group | str]:
    """Yield tables: a line per method, a line per domain, and the gap of every divergence."""
    methods = figures["methods"]
    plain = [name for name in PLAIN_METHODS if name in methods]
    absent = {speedup_key(name) for name in PLAIN_METHODS if name not in plain}
    columns = {key: title for key, title in COLUMNS.items() if key not in absent}
    if figures["settings"]["concurrency"] > 1:
        columns["throughput_tokens_per_s"] = "all/s"
    rows = [[name, *(m[c] for c in columns)] for name, m in methods.items()]
    rows += [
        [name, peer["tokens_per_s"], *[None] * (len(columns) - 1)]
        for name, peer in figures["peers"].items()
    ]
    yield table(
        "Decoding, compared with Hugging Face (HF) and other peers",
        ["method", *columns.values()],
        rows,
    )
    modes = list(figures["peers"])
    yield table(
        "Speedup with its 95% interval",
        ["method", *(f"over {name}" for name in plain), *(f"over {mode}" for mode in modes)],
        [[name, *_intervals(method, plain, modes)] for name, method in methods.items()],
    )
    if told := {name: m["stage_ms"] for name, m in methods.items() if m["stage_ms"]}:
        stages = ("step", *STAGES)
        yield table(
            "Milliseconds of a decode step",
            ["method", *stages],
            [[name, *(own[stage] for stage in stages)] for name, own in told.items()],
        )
    baseline = figures["settings"]["baseline"]
    key = speedup_key(baseline)
    domains = sorted({domain for m in methods.values() for domain in m["by_domain"]})
    yield table(
        f"Speedup over {baseline}, by domain",
        ["domain", *methods],
        [[d, *(m["by_domain"].get(d, {}).get(key) for m in methods.values())] for d in domains],
    )
    for name, method in methods.items():
        for found in method["divergences"]:
            kind = "near tie" if found["near_tie"] else "divergence"
            yield (
                f"{name}: {kind} on {found['prompt_id']} at token {found['position']}, "
                f"gap {found['gap']:.2e}"
            )
    if "quality" in figures:
        yield from quality_tables(figures["quality"])


def _intervals(method: dict[str, Any], plain: list[str], modes: list[str]) -> list[str]:
    pairs = [(method[speedup_key(n)], method[f"{speedup_key(n)}_ci95"]) for n in plain]
    pairs += [tuple(method["speedup_vs_peers"][mode].values()) for mode in modes]
    return [f"{mean:.2f} ({ci[0]:.2f} to {ci[1]:.2f})" if ci else "–" for mean, ci in pairs]


def _method(name: str, plan: Plan, measured: Measured) -> dict[str, Any]:
    runs = measured.runs[name]
    theirs = {name: measured.runs[name] for name in measured.peers}
    plain = {n: measured.runs[n] for n in PLAIN_METHODS if n in measured.runs}
    figures = summarise(runs, plain, theirs, plan.seed)
    match: dict[str, Any] = {"match_rate": None, "near_tie_rate": None, "divergences": []}
    if name in measured.divergences:
        match = match_figures(len(group(runs)), measured.divergences[name])
    figures["throughput_tokens_per_s"] = _throughput(name, measured)
    return figures | match


def _throughput(name: str, measured: Measured) -> float:
    """Output tokens of a whole run over its wall-clock seconds, median over the repeats.

    One request at a time leaves time to other methods: then the requests' own seconds count.
    """
    tokens, alone = dict[int, int](), dict[int, float]()
    for run in measured.runs[name]:
        tokens[run.repeat] = tokens.get(run.repeat, 0) + len(run.token_ids)
        alone[run.repeat] = alone.get(run.repeat, 0.0) + run.seconds
    seconds = measured.run_seconds.get(name) or [alone[repeat] for repeat in sorted(alone)]
    return statistics.median(tokens[repeat] / s for repeat, s in enumerate(seconds))


def _settings(plan: Plan, measured: Measured) -> dict[str, Any]:
    domains: dict[str, int] = {}
    for prompt in plan.prompts:
        domains[prompt.domain] = domains.get(prompt.domain, 0) + 1
    return {
        **describe_machine(),
        "engine": plan.setup.engine.model_dump(mode="json"),
        "dtype": plan.setup.engine.dtype,
        "threads": plan.setup.engine.threads,
        "bundle": str(plan.setup.bundle),
        "methods": {spec.name: spec.settings_hash() for spec in plan.setup.methods},
        "baseline": baseline_of(plan.setup.names),
        "repeats": plan.repeats,
        "max_tokens": plan.max_tokens,
        "temperature": plan.temperature,
        "top_p": plan.top_p,
        "seeded": plan.seeded,
        "predict": plan.predict,
        "lockstep": plan.lockstep,
        "concurrency": plan.concurrency,
        "seed": plan.seed,
        "min_tokens_for_speed": MIN_TOKENS,
        "prompts": {
            "sha256": fingerprint(plan.prompts),
            "domains": domains,
            "skipped_too_long": measured.skipped_too_long,
            "ids": [prompt.id for prompt in plan.prompts],
        },
        "peers": measured.peer_settings,
    }
