"""Figures of benchmarks: what docs/measuring.md defines, as pure functions."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from router.fit.speedup import MIN_TOKENS, harmonic_mean
from schemas import DecodeStats

NEAR_TIE_GAP = 1e-4
RESAMPLES = 2000
STAGES = ("draft", "verify", "sample", "other")


@dataclass(frozen=True)
class Run:
    """One response, timed once. Seconds run from the request to its last token."""

    prompt_id: str
    domain: str
    repeat: int
    tokens: int
    seconds: float
    first_token_seconds: float | None = None
    token_ids: tuple[int, ...] = ()
    target_steps: int | None = None
    looping: bool = False
    stages: tuple[float, ...] | None = None
    """Seconds of STAGES in all steps; None where the engine does not tell."""

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds

    @property
    def decode_tokens_per_s(self) -> float | None:
        """Without the prefill: the tokens after the first over the seconds after it."""
        if self.first_token_seconds is None or self.seconds <= self.first_token_seconds:
            return None
        return (self.tokens - 1) / (self.seconds - self.first_token_seconds)


def run_of(
    labels: tuple[str, str, int],
    token_ids: Sequence[int],
    seconds: tuple[float, float | None],
    stats: DecodeStats,
) -> Run:
    """Return a response as a run. labels: prompt, domain and repeat. seconds: all, and those until
    the first token."""
    stages = tuple(getattr(stats, f"{name}_seconds") for name in STAGES)
    told = stages if stats.verify_seconds else None  # vLLM tells none
    steps, looping = stats.target_steps, stats.looping
    return Run(*labels, len(token_ids), *seconds, tuple(token_ids), steps, looping, told)


@dataclass(frozen=True)
class Divergence:
    """Where a response left the reference, and how far apart the target's two best logits were."""

    prompt_id: str
    position: int
    gap: float
    near_tie: bool


def domain_mean(values: Mapping[str, Sequence[float]]) -> float | None:
    """Harmonic mean with equal weight for each domain: that of the domains' harmonic means."""
    means = [harmonic_mean(members) for members in values.values() if members]
    return harmonic_mean(means) if means else None


def group(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """The repeats of every prompt: prompt id to its runs."""
    grouped: dict[str, list[Run]] = {}
    for run in runs:
        grouped.setdefault(run.prompt_id, []).append(run)
    return grouped


def rates(
    runs: Iterable[Run], rate: Callable[[Run], float | None] = lambda run: run.tokens_per_s
) -> dict[str, list[float]]:
    """Return, by domain, each prompt's median rate if its response is long enough to count."""
    result: dict[str, list[float]] = {}
    for repeats in group(runs).values():
        values = [v for run in repeats if counts(run) and (v := rate(run)) is not None]
        if values:
            result.setdefault(repeats[0].domain, []).append(statistics.median(values))
    return result


def paired_speedups(runs: Iterable[Run], baseline: Iterable[Run]) -> dict[str, list[float]]:
    """Per domain each prompt's speedup: the median over repeats of rate over baseline rate.

    Both rates of a pair come from the same repeat, so that slow drift of the machine cancels.
    """
    reference = {(run.prompt_id, run.repeat): run for run in baseline}
    result: dict[str, list[float]] = {}
    for prompt_id, repeats in group(runs).items():
        ratios = [
            run.tokens_per_s / other.tokens_per_s
            for run in repeats
            if (other := reference.get((prompt_id, run.repeat))) and counts(run) and counts(other)
        ]
        if ratios:
            result.setdefault(repeats[0].domain, []).append(statistics.median(ratios))
    return result


def counts(run: Run) -> bool:
    """Whether the response is long enough to count for speed; a shorter one is mostly prefill."""
    return run.tokens >= MIN_TOKENS


def mean_accepted_tokens(runs: Iterable[Run]) -> dict[str, float]:
    """Per domain the output tokens per target step, the bonus token included."""
    tokens: dict[str, int] = {}
    steps: dict[str, int] = {}
    for run in runs:
        if run.target_steps and counts(run):
            tokens[run.domain] = tokens.get(run.domain, 0) + run.tokens
            steps[run.domain] = steps.get(run.domain, 0) + run.target_steps
    return {domain: tokens[domain] / steps[domain] for domain in tokens}


def stage_seconds(runs: Iterable[Run]) -> dict[str, float | None]:
    """Return the mean seconds of each stage of a decode step; None where no run reports them.

    A batch's step counts once for each of its sequences, and so do its steps.
    """
    known = [run for run in runs if run.stages and run.target_steps and run.target_steps > 1]
    steps = sum((run.target_steps or 1) - 1 for run in known)
    keys = [f"{name}_s" for name in STAGES]
    if not steps:
        return dict.fromkeys(keys)
    columns = zip(*(run.stages or () for run in known), strict=True)
    return {key: sum(own) / steps for key, own in zip(keys, columns, strict=True)}


def same_text_rate(runs: Iterable[Run], plain: Iterable[Run]) -> float:
    """Return the share of prompts with the tokens of plain decoding, by the first repeat."""
    expected = {run.prompt_id: run.token_ids for run in plain if run.repeat == 0}
    same = [expected[run.prompt_id] == run.token_ids for run in runs if run.repeat == 0]
    return statistics.fmean(same)


def loop_rate(runs: Iterable[Run]) -> float:
    """Return the share of prompts whose answer looped in any repeat."""
    grouped = group(runs)
    return sum(any(r.looping for r in runs) for runs in grouped.values()) / len(grouped)


def first_difference(answer: Sequence[int], reference: Sequence[int]) -> int | None:
    """Position of the first token at which two responses differ; None where they are equal."""
    for position, (ours, theirs) in enumerate(zip(answer, reference, strict=False)):
        if ours != theirs:
            return position
    return None if len(answer) == len(reference) else min(len(answer), len(reference))


def match_figures(prompts: int, divergences: Sequence[Divergence]) -> dict[str, Any]:
    """match_rate over the prompts that are not near ties, and the near ties' share of all."""
    near_ties = sum(d.near_tie for d in divergences)
    judged = prompts - near_ties
    wrong = len(divergences) - near_ties
    return {
        "match_rate": (judged - wrong) / judged if judged else None,
        "near_tie_rate": near_ties / prompts,
        "divergences": [vars(d) for d in divergences],
    }


def domain_mean_ci(values: Mapping[str, Sequence[float]], seed: int) -> tuple[float, float] | None:
    """Return the 95% percentile interval of `domain_mean` of paired ratios; prompts are drawn
    within domains."""
    slow = [1.0 / np.asarray(members) for members in values.values() if members]
    if not slow:
        return None
    rng = np.random.default_rng(seed)
    means = np.zeros(RESAMPLES)
    for members in slow:
        drawn = rng.integers(0, members.size, (RESAMPLES, members.size))
        means += members[drawn].mean(axis=1) / len(slow)
    low, high = np.quantile(1.0 / means, [0.025, 0.975])
    return float(low), float(high)


def ratio_of_means(
    runs: Iterable[Run], baseline: Iterable[Run], seed: int
) -> tuple[float | None, tuple[float, float] | None]:
    """Return the baseline's mean seconds per token over those of the runs, and its 95% interval.

    Domains weigh alike; prompts are drawn within domains. Where the texts differ, this is 1 for
    two runs of one method. A harmonic mean of ratios is lower: it is 1 over the mean of ratios
    whose noise goes both ways.
    """
    theirs = {(run.prompt_id, run.repeat): run for run in baseline}
    by_domain: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for run in runs:
        other = theirs.get((run.prompt_id, run.repeat))
        if other is not None and counts(run) and counts(other):
            pair = 1.0 / run.tokens_per_s, 1.0 / other.tokens_per_s
            by_domain.setdefault(run.domain, {}).setdefault(run.prompt_id, []).append(pair)
    if not by_domain:
        return None, None
    rng, all_prompts, slowness = np.random.default_rng(seed), 0.0, np.zeros(RESAMPLES)
    for prompts in by_domain.values():
        means = np.array([np.mean(pairs, axis=0) for pairs in prompts.values()])
        drawn = means[rng.integers(0, len(means), (RESAMPLES, len(means)))].sum(axis=1)
        slowness += drawn[:, 0] / drawn[:, 1] / len(by_domain)
        ours, base = means.sum(axis=0)
        all_prompts += ours / base / len(by_domain)
    low, high = np.quantile(1.0 / slowness, [0.025, 0.975])
    return 1.0 / all_prompts, (float(low), float(high))


def summarise(
    runs: Sequence[Run], others: Mapping[str, Sequence[Run]], baseline: str, seed: int = 0
) -> dict[str, Any]:
    """Return a method's figures, with its speedup over each of the others by name.

    baseline: the one of `others` that the domains' speedups are over.
    """
    over = {name: paired_speedups(runs, theirs) for name, theirs in others.items()}
    mat, rate = mean_accepted_tokens(runs), rates(runs)
    return {
        "tokens_per_s": domain_mean(rate),
        "decode_tokens_per_s": domain_mean(rates(runs, lambda run: run.decode_tokens_per_s)),
        "over": {
            name: {"speedup": domain_mean(ratios), "ci95": domain_mean_ci(ratios, seed)}
            for name, ratios in over.items()
        },
        "mat": statistics.fmean(mat.values()) if mat else None,
        **stage_seconds(runs),
        "same_text_rate": same_text_rate(runs, others[baseline]),
        "loop_rate": loop_rate(runs),
        "prompts": sum(map(len, rate.values())),
        "by_domain": {
            domain: {
                "tokens_per_s": harmonic_mean(rate[domain]),
                "speedup": harmonic_mean(ratios),
                "mat": mat.get(domain),
                "prompts": len(rate[domain]),
            }
            for domain, ratios in sorted(over[baseline].items())
        },
    }
