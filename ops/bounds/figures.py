"""The figures of `bench bounds`, from traced answers and what steps cost."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ops.bounds.costs import StepSeconds
from ops.cli.boundary import InputError
from router.bounds import Kept, best_seconds, fixed_seconds, longest_seconds
from router.speedup import BASELINE, MIN_TOKENS, harmonic_mean, paired_bootstrap_ci, speedup

COMBINED = "oracle_combine"
SCHEDULE = "best_schedule"
PROMPT = "best_of_prompt"


@dataclass(frozen=True)
class Answer:
    """What each drafter keeps at every position of one answer."""

    prompt_id: str
    domain: str
    kept: Mapping[str, Kept]


def answers_of(
    rows: Sequence[Mapping[str, Any]], drafters: Sequence[str]
) -> tuple[list[Answer], dict[str, int]]:
    """The answers that count for speed and that every drafter was traced on, and the most levels
    that each drafter drafted. Raises InputError where nothing is left, and where drafts were drawn:
    of these a trace tells probabilities."""
    by_prompt: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        if row["method"] in drafters and len(row["answer"]) >= MIN_TOKENS:
            by_prompt.setdefault(row["prompt_id"], {})[row["method"]] = row
    answers, levels = [], dict.fromkeys(drafters, 1)
    for prompt_id, found in by_prompt.items():
        if len(found) < len(drafters):
            continue
        for name, row in found.items():
            levels[name] = max(levels[name], *map(len, row["kept"]))
        domain = next(iter(found.values()))["domain"]
        answers.append(Answer(prompt_id, domain, {n: _kept(n, r) for n, r in found.items()}))
    if not answers:
        raise InputError("--traces: no answer of 8 tokens or more was traced under all methods")
    return answers, levels


def _kept(method: str, row: Mapping[str, Any]) -> list[int]:
    if any(0.0 < share < 1.0 for kept in row["kept"] for share in kept):
        raise InputError(
            f"--methods: {method} draws its tokens at temperature {row['temperature']:g}, so that "
            "nobody can know which are kept; leave it out, or take --temperature 0"
        )
    return [int(sum(kept)) for kept in row["kept"]]


def bounds(
    answers: Sequence[Answer], levels: Mapping[str, int], seconds: StepSeconds, seed: int
) -> dict[str, Any]:
    """Speedups over plain decoding of the tokens after the first, harmonic means over answers, each
    domain counting alike: every drafter as it is (fixed), each with just the tokens that are kept
    (oracle_length), and all together."""
    speedups = [_speedups(answer, levels, seconds) for answer in answers]
    names = list(speedups[0])
    counts = {a.domain: sum(b.domain == a.domain for b in answers) for a in answers}
    weights = np.asarray([1.0 / counts[answer.domain] for answer in answers])
    means = {
        name: harmonic_mean([found[name] for found in speedups], weights / weights.sum())
        for name in names
    }
    single = max(levels, key=lambda name: means[name])
    low, high = paired_bootstrap_ci(
        [found[COMBINED] for found in speedups],
        [found[single] for found in speedups],
        seed,
        weights,
    )
    return {
        "answers": len(answers),
        "fixed": {name: means[name] for name in levels},
        "oracle_length": {name: means[_length(name)] for name in levels},
        "best_single": {"name": single, "speedup": means[single]},
        **{name: means[name] for name in (PROMPT, COMBINED, SCHEDULE)},
        "combine_over_best_single": means[COMBINED] / means[single],
        "combine_over_best_single_ci95": [low, high],
        "by_domain": {
            domain: {
                "answers": counts[domain],
                **{
                    name: harmonic_mean(
                        [
                            f[name]
                            for f, a in zip(speedups, answers, strict=True)
                            if a.domain == domain
                        ]
                    )
                    for name in (*levels, PROMPT, COMBINED, SCHEDULE)
                },
            }
            for domain in sorted(counts)
        },
    }


def _length(name: str) -> str:
    return f"{name}, oracle length"


def _speedups(answer: Answer, levels: Mapping[str, int], seconds: StepSeconds) -> dict[str, float]:
    def cost(drafter: str | None, length: int) -> float:
        return seconds.of(drafter, length, levels[drafter] if drafter else 1)

    plain = cost(None, 0) * len(next(iter(answer.kept.values())))
    taken = {name: fixed_seconds(kept, seconds.whole[name]) for name, kept in answer.kept.items()}
    taken[PROMPT] = min(taken.values())
    for name, kept in answer.kept.items():
        taken[_length(name)] = longest_seconds({name: kept}, cost)
    taken[COMBINED] = longest_seconds(answer.kept, cost)
    taken[SCHEDULE] = best_seconds(answer.kept, cost)
    return {name: speedup(1.0 / plain, 1.0 / found) for name, found in taken.items()}


def reached(decoded: Path, figures: Mapping[str, Any], ids: set[str]) -> dict[str, Any]:
    """By method of a `bench decode` of the same prompts: tokens/s after the first token over plain
    decoding's, and the share of the bounds that this is. Raises InputError for other prompts."""
    measured = json.loads(decoded.read_text(encoding="utf-8"))
    if set(measured["settings"]["prompts"]["ids"]) != ids:
        raise InputError(f"--decoded: {decoded} is about other prompts; decode those of --ids")
    rates = {name: found["decode_tokens_per_s"] for name, found in measured["methods"].items()}
    if rates.get(BASELINE) is None:
        raise InputError(f"--decoded: {decoded} has no {BASELINE} to be compared with")
    over = {name: rate / rates[BASELINE] for name, rate in rates.items() if rate}
    return {
        name: {"speedup": value, **{b: value / figures[b] for b in (COMBINED, SCHEDULE)}}
        for name, value in over.items()
    }
