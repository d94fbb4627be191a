"""The figures of `bench routed`: what docs/measuring.md defines, as pure functions.

Arrays of rates are output tokens over the client's seconds; p prompts, m methods, r repeats.
"""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ops.bench.stats import domain_mean
from router.fit.speedup import (
    MIN_TOKENS,
    harmonic_mean,
    oracle_rates,
    paired_bootstrap_ci,
    speedup,
    tokens_per_second,
)

Floats = NDArray[np.float64]

ROUTED = "routed"
"""The arm that is not pinned to a method; the others have their method's name."""


@dataclass(frozen=True)
class Run:
    """An answer as its client saw it.

    seconds: from the request to the answer's end. first_text_seconds: to its first text, None
    without text. method, reason: the method that answered and the service's reason for it.
    """

    arm: str
    prompt_id: str
    domain: str
    repeat: int
    method: str
    reason: str
    tokens: int
    seconds: float
    target_steps: int
    text: str
    first_text_seconds: float | None = None
    looping: bool = False

    @property
    def decode_tokens_per_s(self) -> float | None:
        """As in `bench decode`: the tokens after the first over the seconds after it."""
        if self.first_text_seconds is None or self.seconds <= self.first_text_seconds:
            return None
        return (self.tokens - 1) / (self.seconds - self.first_text_seconds)


@dataclass(frozen=True)
class Rates:
    """The prompts that count, with their rates: routed [p, r], pinned [p, m, r]."""

    prompts: tuple[str, ...]
    domains: tuple[str, ...]
    routed: Floats
    pinned: Floats

    def only(self, kept: Sequence[bool]) -> "Rates":
        """Those of the prompts [p] that are kept."""
        rows = np.flatnonzero(kept)
        return Rates(
            tuple(self.prompts[row] for row in rows),
            tuple(self.domains[row] for row in rows),
            self.routed[rows],
            self.pinned[rows],
        )


def rates_of(runs: Sequence[Run], methods: Sequence[str], repeats: int) -> Rates:
    """Return the rates of the prompts that all arms answered in every repeat with enough tokens.

    Raises ValueError if there is none.
    """
    arms = {arm: row for row, arm in enumerate((ROUTED, *methods))}
    domains = {run.prompt_id: run.domain for run in runs}
    rates: dict[str, Floats] = {}
    for run in runs:
        if run.tokens >= MIN_TOKENS:
            cells = rates.setdefault(run.prompt_id, np.full((len(arms), repeats), np.nan))
            cells[arms[run.arm], run.repeat] = tokens_per_second(run.tokens, run.seconds)
    whole = {prompt: cells for prompt, cells in rates.items() if not np.isnan(cells).any()}
    if not whole:
        raise ValueError(
            f"no prompt has answers of {MIN_TOKENS} tokens or more from all of {', '.join(arms)}: "
            "nothing counts for speed"
        )
    array = np.asarray(list(whole.values()))
    return Rates(tuple(whole), tuple(domains[p] for p in whole), array[:, 0], array[:, 1:])


def over_repeats(rates: Floats) -> Floats:
    """The harmonic mean over the last axis: that of the repeats."""
    mean: Floats = 1.0 / (1.0 / rates).mean(axis=-1)
    return mean


def summarise(
    runs: Sequence[Run], methods: Sequence[str], repeats: int, seed: int
) -> dict[str, Any]:
    """Return all figures but those of failures.

    The best single method is chosen once, on all prompts that count, for all intervals and domains.
    Raises ValueError if no prompt counts.
    """
    rates = rates_of(runs, methods, repeats)
    speeds = [harmonic_mean(rates.pinned[:, i].ravel()) for i in range(len(methods))]
    best = int(np.argmax(speeds))
    oracle = oracle_rates(rates.pinned)
    counted = set(rates.prompts)
    long = [run for run in runs if run.prompt_id in counted]
    looped = {run.prompt_id for run in long if run.looping}
    routed = [run for run in runs if run.arm == ROUTED]
    return {
        ROUTED: _arm(long, ROUTED, harmonic_mean(rates.routed.ravel())),
        "methods": {
            name: _arm(long, name, speed) for name, speed in zip(methods, speeds, strict=True)
        },
        "best_single": {"name": methods[best], "tokens_per_s": speeds[best]},
        "oracle": None if oracle is None else {"tokens_per_s": harmonic_mean(oracle)},
        **_compared(rates, best),
        **_intervals(rates, best, seed),
        "reasons": dict(Counter(run.reason for run in routed).most_common()),
        "chosen": dict(Counter(run.method for run in routed).most_common()),
        "loop_rate": len(looped) / len(counted),
        "without_looping": _compared(rates.only([p not in looped for p in rates.prompts]), best),
        "by_domain": {
            domain: _compared(rates.only([d == domain for d in rates.domains]), best)
            for domain in sorted(set(rates.domains))
        },
    }


def _arm(runs: Sequence[Run], arm: str, tokens_per_s: float) -> dict[str, float | None]:
    return {
        "tokens_per_s": tokens_per_s,
        "decode_tokens_per_s": decode_speed(runs, arm),
        "mat": mean_accepted_tokens(runs, arm),
    }


def decode_speed(runs: Sequence[Run], arm: str) -> float | None:
    """An arm's tokens/s without what comes before an answer's first token: the harmonic mean of
    the domains', as `bench decode` has it."""
    by_domain: dict[str, list[float]] = {}
    for run in runs:
        if run.arm == arm and (rate := run.decode_tokens_per_s) is not None:
            by_domain.setdefault(run.domain, []).append(rate)
    return domain_mean(by_domain)


def mean_accepted_tokens(runs: Sequence[Run], arm: str) -> float:
    """Output tokens per target step of an arm, the bonus token included: the mean of the domains'
    ratios of sums."""
    sums: dict[str, tuple[int, int]] = {}
    for run in runs:
        if run.arm == arm:
            tokens, steps = sums.get(run.domain, (0, 0))
            sums[run.domain] = (tokens + run.tokens, steps + run.target_steps)
    return statistics.fmean(tokens / steps for tokens, steps in sums.values())


def same_text(runs: Sequence[Run], answers: int) -> float | None:
    """Return the share of prompts whose `answers` answers have the same text.

    Counts the prompts that have all their answers; None if there is none.
    """
    texts: dict[str, list[str]] = {}
    for run in runs:
        texts.setdefault(run.prompt_id, []).append(run.text)
    whole = [given for given in texts.values() if len(given) == answers]
    return statistics.fmean(len(set(given)) == 1 for given in whole) if whole else None


def _compared(rates: Rates, best: int) -> dict[str, Any]:
    """Return the number of prompts and the ratios of routed, best single method and oracle.

    best: the index of the best method. Ratios are None without prompts or without an oracle.
    """
    found: dict[str, Any] = {
        "counted": len(rates.prompts),
        "routed_over_best_single": None,
        "routed_over_oracle": None,
        "oracle_over_best_single": None,
    }
    if not rates.prompts:
        return found
    routed = harmonic_mean(rates.routed.ravel())
    single = harmonic_mean(rates.pinned[:, best].ravel())
    found["routed_over_best_single"] = speedup(single, routed)
    each = oracle_rates(rates.pinned)
    if each is not None:
        oracle = harmonic_mean(each)
        found["routed_over_oracle"] = speedup(oracle, routed)
        found["oracle_over_best_single"] = speedup(single, oracle)
    return found


def _intervals(rates: Rates, best: int, seed: int) -> dict[str, Any]:
    """95% intervals of a paired bootstrap over prompts, over the method with index `best`."""
    single = over_repeats(rates.pinned[:, best])
    found = {"routed": over_repeats(rates.routed), "oracle": oracle_rates(rates.pinned)}
    return {
        f"{name}_over_best_single_ci95": None
        if values is None
        else list(paired_bootstrap_ci(values, single, seed))
        for name, values in found.items()
    }
