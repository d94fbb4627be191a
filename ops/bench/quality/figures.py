"""Figures of `bench quality`, as docs/measuring.md defines them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from statistics import fmean
from typing import Any

from ops.bench.decode.figures import (
    Run,
    domain_mean,
    domain_mean_ci,
    first_difference,
    loop_rate,
    mean_accepted_tokens,
    paired_speedups,
    rates,
)
from ops.bench.quality.accuracy import final_number, wilson
from ops.bench.quality.divergence import Reading, excess_nats, kl_at_least, nats_over_plain


@dataclass(frozen=True)
class GivenAnswer:
    """A timed answer with its text and the target's scores of its tokens."""

    run: Run
    text: str
    reading: Reading


def figures_at(
    temperature: float,
    answers: Sequence[GivenAnswer],
    plain: Sequence[GivenAnswer],
    right: Mapping[str, Decimal],
    seed: int,
) -> dict[str, Any]:
    """Return a method's figures at one temperature, next to plain decoding of the same prompts.

    Both lists have the same order. right: the correct number by prompt id, if there is one.
    """
    runs, plain_runs = [one.run for one in answers], [one.run for one in plain]
    speedups = paired_speedups(runs, plain_runs)
    mat = mean_accepted_tokens(runs)
    readings = [one.reading for one in answers]
    divergences: dict[str, Any] = {
        "kl_at_least": (None, None),
        "excess_nats": excess_nats(readings, seed),
        "nats_over_plain": nats_over_plain(readings, [one.reading for one in plain], seed),
    }
    as_if = None
    if temperature > 0.0:
        *bound, sharpness = kl_at_least(readings, seed)
        divergences["kl_at_least"], as_if = tuple(bound), temperature / sharpness
    return {
        "prompts": len(runs),
        "tokens": sum(len(run.token_ids) for run in runs),
        "tokens_per_s": domain_mean(rates(runs)),
        "speedup_vs_naive": domain_mean(speedups),
        "speedup_vs_naive_ci95": domain_mean_ci(speedups, seed),
        "mat": fmean(mat.values()) if mat else None,
        "loop_rate": loop_rate(runs),
        **_matches(temperature, runs, plain_runs),
        **{key: value for key, (value, _) in divergences.items()},
        **{f"{key}_ci95": interval for key, (_, interval) in divergences.items()},
        "as_if_temperature": as_if,
        **_numbers(answers, plain, right),
    }


def _matches(temperature: float, runs: Sequence[Run], plain: Sequence[Run]) -> dict[str, Any]:
    """Return the match figures; None above temperature 0, where plain answers differ too."""
    if temperature > 0.0:
        return {"match_rate": None, "tokens_before_divergence": None}
    pairs = [(run.token_ids, other.token_ids) for run, other in zip(runs, plain, strict=True)]
    found = [first_difference(ours, theirs) for ours, theirs in pairs]
    same = [
        len(theirs) if position is None else position
        for position, (_, theirs) in zip(found, pairs, strict=True)
    ]
    return {
        "match_rate": found.count(None) / len(found),
        "tokens_before_divergence": sum(same) / sum(len(theirs) for _, theirs in pairs),
    }


def _numbers(
    answers: Sequence[GivenAnswer], plain: Sequence[GivenAnswer], right: Mapping[str, Decimal]
) -> dict[str, Any]:
    """Return the accuracy on graded prompts, and the share with plain decoding's number."""
    graded = [
        (final_number(one.text), final_number(other.text), right[one.run.prompt_id])
        for one, other in zip(answers, plain, strict=True)
        if one.run.prompt_id in right
    ]
    hits = {
        "accuracy": sum(ours == solution for ours, _, solution in graded),
        "same_number": sum(ours == theirs for ours, theirs, _ in graded),
    }
    count = len(graded)
    return {
        "graded": count,
        **{key: hit / count if count else None for key, hit in hits.items()},
        **{f"{key}_ci95": wilson(hit, count) if count else None for key, hit in hits.items()},
    }
