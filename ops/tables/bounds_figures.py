"""The figures of `bench bounds`, from traced answers and what steps cost."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ops.harness.boundary import InputError
from ops.tables.bounds_costs import StepSeconds
from router.fit.bounds import Kept, best_seconds, fixed_seconds, longest_seconds
from router.fit.speedup import MIN_TOKENS, harmonic_mean, paired_bootstrap_ci, speedup

COMBINED = "oracle_combine"
SCHEDULE = "best_schedule"
PROMPT = "best_of_prompt"
DOMAIN = "best_of_domain"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Answer:
    """The accepted tokens of each drafter at every position of an answer."""

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
            "its acceptance is unknown; leave it out, or use --temperature 0"
        )
    return [int(sum(kept)) for kept in row["kept"]]


def speedups_of(
    answers: Sequence[Answer], levels: Mapping[str, int], seconds: StepSeconds
) -> dict[str, Floats]:
    """Return, by drafter and bound, each answer's speedup [n] over plain decoding.

    The first token does not count.
    """
    rows = [_speedups(answer, levels, seconds) for answer in answers]
    found = {name: np.asarray([row[name] for row in rows]) for name in rows[0]}
    found[DOMAIN] = _best_of_each([answer.domain for answer in answers], found, levels)
    return found


def domain_weights(answers: Sequence[Answer]) -> Floats:
    """What each answer counts [n], where each domain counts alike."""
    counts = Counter(answer.domain for answer in answers)
    return np.asarray([1.0 / counts[answer.domain] for answer in answers])


def bounds(
    answers: Sequence[Answer], levels: Mapping[str, int], found: Mapping[str, Floats], seed: int
) -> dict[str, Any]:
    """Return the figures of the answers' speedups (`speedups_of`).

    Harmonic means, each domain counting alike: every drafter as it is (fixed), each drafting just
    the tokens that are accepted (oracle_length), all together, and every set of two or more
    (combined).
    """
    weights = domain_weights(answers)
    means = {name: harmonic_mean(values, weights) for name, values in found.items()}
    single = max(levels, key=lambda name: means[name])
    together = [DOMAIN, PROMPT, COMBINED, SCHEDULE]
    shown = [*levels, *together]
    return {
        "answers": len(answers),
        "fixed": {name: means[name] for name in levels},
        "oracle_length": {name: means[_length(name)] for name in levels},
        "best_single": {"name": single, "speedup": means[single]},
        **{name: means[name] for name in together},
        "combined": {
            _set(names): {
                "speedup": means[_set(names)],
                "ci95": _interval(found[_set(names)], weights, seed),
            }
            for names in _sets(levels)
        },
        "ci95": {
            name: _interval(found[name], weights, seed) for name in (*shown, *map(_length, levels))
        },
        "combine_over_best_single": means[COMBINED] / means[single],
        "combine_over_best_single_ci95": list(
            paired_bootstrap_ci(found[COMBINED], found[single], seed, weights)
        ),
        "by_domain": _by([answer.domain for answer in answers], found, shown),
    }


def _interval(values: Floats, weights: Floats, seed: int) -> list[float]:
    return list(paired_bootstrap_ci(values, np.ones_like(values), seed, weights))


def _by(
    groups: Sequence[str], found: Mapping[str, Floats], names: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Return the harmonic means within each group, and its number of answers."""
    labels = np.asarray(groups)
    return {
        group: {
            "answers": int((labels == group).sum()),
            **{name: harmonic_mean(found[name][labels == group]) for name in names},
        }
        for group in sorted(set(groups))
    }


def _best_of_each(
    groups: Sequence[str], found: Mapping[str, Floats], drafters: Collection[str]
) -> Floats:
    """Return each answer's speedup under the method that is best on its group.

    The group contains the answer itself, which flatters small groups.
    """
    labels = np.asarray(groups)
    best = np.ones(len(groups))
    for group in set(groups):
        inside = labels == group
        leader = max(drafters, key=lambda name: harmonic_mean(found[name][inside]))
        if harmonic_mean(found[leader][inside]) > 1.0:
            best[inside] = found[leader][inside]
    return best


def _sets(names: Collection[str]) -> list[tuple[str, ...]]:
    """All sets of two or more."""
    return [c for size in range(2, len(names) + 1) for c in combinations(names, size)]


def _set(names: Sequence[str]) -> str:
    return " + ".join(names)


def _length(name: str) -> str:
    return f"{name}, oracle length"


def _speedups(answer: Answer, levels: Mapping[str, int], seconds: StepSeconds) -> dict[str, float]:
    def cost(drafter: str | None, length: int) -> float:
        return seconds.of(drafter, length, levels[drafter] if drafter else 1)

    plain = cost(None, 0) * len(next(iter(answer.kept.values())))
    taken = {name: fixed_seconds(kept, seconds.whole[name]) for name, kept in answer.kept.items()}
    taken[PROMPT] = min(plain, *taken.values())
    for name, kept in answer.kept.items():
        taken[_length(name)] = longest_seconds({name: kept}, cost)
    for names in _sets(levels):
        taken[_set(names)] = longest_seconds({name: answer.kept[name] for name in names}, cost)
    taken[COMBINED] = longest_seconds(answer.kept, cost)
    taken[SCHEDULE] = best_seconds(answer.kept, cost)
    return {name: speedup(1.0 / plain, 1.0 / found) for name, found in taken.items()}
