"""What the evidence in a routing table says about acceptance, and how uncertain that is.

Evidence is counted in responses, because answers of one cluster differ far more than the steps of
one answer. A cell (cluster, method, temperature band) borrows evidence: live answers from profiled
ones, a band from the cell's other bands, a cluster from all clusters.
"""

import functools
import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from router import prompt
from router.prompt import Predicted
from schemas import TEMPERATURE_BANDS, Objective, RoutingTable

Floats = NDArray[np.float64]
Found = TypeVar("Found")

PRIOR_STEPS = 50.0
"""Steps at the method's acceptance over all clusters that every cell starts with, so that a cell
with three answers decides nothing."""

ANSWER_TOKENS = 32.0
"""Tokens of evidence that count as one response."""

MOST_ANSWERS = 4.0
"""Most answers that a long response counts as, for acceptance under the objective `seconds` and for
the length of responses: a single answer must not look certain."""

OFFLINE_ANSWERS = 16.0
"""Most answers that offline evidence counts as next to live ones. Live traffic may differ from any
profile by a tenth (ANSWER_SPREAD / sqrt(16))."""

ANSWER_SPREAD = 0.4
"""Standard deviation of a response's log acceptance around its cluster's mean: 0.17 to 0.43 for the
speculative methods, measured on the demo family."""

CLUSTER_ANSWERS = 4.0
"""Answers that the other clusters are worth to a cell. Its log acceptance lies within 0.2 of the
method's mean over clusters (0.06 to 0.29 on the demo family), which is ANSWER_SPREAD / sqrt(4)."""

MOVED_ANSWERS = 8.0
"""Live answers from which on a gap to the profile counts as a change of the cell's traffic. One
short lucky answer overrules nothing."""

BAND_ANSWERS = 8.0
"""Most answers that a cell's other temperature bands lend to one without answers of its own. They
lend half as much to one that has this many."""

BAND_PRIOR = 16.0
"""Weight, in responses, of the assumption that temperature does not change a method's
acceptance."""

PLAIN_ANSWERS = 16.0
"""Answers without an accepted token after which a method counts as plain decoding."""

UNKNOWN_SPREAD = 0.7
"""Standard deviation of the log acceptance of a method without answers: speculative methods emit
one to four tokens a step."""

STEP_SPREAD = 0.15
"""Standard deviation of a response's log step time around its method's: 0.16 to 0.18 on the demo
family, partly because contexts differ in length."""

STEP_PRIOR = 0.5
"""Weight, in responses, of the assumption that a method's steps are as fast as profiled, given the
other methods on this machine: within a fifth (STEP_SPREAD / sqrt(0.5))."""

LEAST_ERROR = 0.05
"""Smallest standard error of a prediction: tomorrow's traffic is not the traffic that was
counted."""


def once(compute: Callable[[RoutingTable], Found]) -> Callable[[RoutingTable], Found]:
    """Cache a function's result for the active table, which every prompt asks for."""
    last: tuple[RoutingTable, Found] | None = None

    def remembered(table: RoutingTable) -> Found:
        nonlocal last
        known = last  # read once: another thread may ask about another table
        if known is None or known[0] is not table:
            known = last = (table, compute(table))
            if isinstance(known[1], np.ndarray):
                known[1].flags.writeable = False
        return known[1]

    return functools.wraps(compute)(remembered)


def acceptance_evidence(
    output_tokens: float,
    target_steps: float,
    objective: Objective,
    usual_tokens: float,
    deviation: float = 0.0,
) -> tuple[float, float]:
    """Return the tokens and steps that one response adds to its cell, without the prefill's.

    usual_tokens: mean output tokens of the cluster. deviation: predicted distance of the prompt's
    log acceptance from its cell's (`router.prompt`); the response counts with the steps that it
    would have taken at deviation 0.

    Under the objective `speedup` a long response counts as one of ANSWER_TOKENS. Otherwise a few
    answers that loop up to their limit, where copying works best, would outvote the rest of their
    cluster. Under `seconds` answers count by their tokens: one of `usual_tokens` as one of
    ANSWER_TOKENS, and no response as more than MOST_ANSWERS.
    """
    tokens, steps = max(0.0, output_tokens - 1.0), max(0.0, target_steps - 1.0)
    whole = max(tokens, ANSWER_TOKENS)
    if objective == "seconds":
        whole = max(1.0, usual_tokens, tokens / MOST_ANSWERS)
    scale = ANSWER_TOKENS / whole
    return scale * tokens, scale * steps * math.exp(deviation)


def learns_acceptance(looping: bool, lossless: bool) -> bool:
    """Return whether a response counts for acceptance.

    A lossy method's loops are its own and would flatter it. A lossless method's loops are the
    target's, and it really finishes them sooner.
    """
    return lossless or not looping


def counted(table: RoutingTable) -> tuple[Floats, Floats]:
    """Return the tokens and steps [k, m, t] behind every cell: weighted offline plus live ones."""
    weight = _offline_weight(table)
    return (
        weight * table.acceptance_tokens + table.live.tokens,
        weight * table.acceptance_steps + table.live.steps,
    )


@once
def acceptance(table: RoutingTable) -> Floats:
    """Return tokens per decode step [k, m, t], at least 1.

    A cell is shrunk toward the same cluster's other temperature bands (`_from_other_bands`), then
    toward the method's mean over clusters in its band. A band without evidence uses the nearest
    band with some; a method without any uses plain decoding's 1.
    """
    tokens, steps = (
        own + other for own, other in zip(counted(table), _from_other_bands(table), strict=True)
    )
    # No cluster adds all its live answers to the mean: a method gets most prompts from the
    # clusters it is good at.
    voice = np.minimum(1.0, OFFLINE_ANSWERS * ANSWER_TOKENS / np.maximum(tokens, 1.0))
    band_tokens, band_steps = (voice * tokens).sum(axis=0), (voice * steps).sum(axis=0)
    prior = np.ones_like(band_tokens)
    bands = range(len(TEMPERATURE_BANDS))
    for m in range(len(table.methods)):
        seen = [b for b in bands if band_steps[m, b] > 0.0]
        for b in bands:
            if seen:
                near = min(seen, key=lambda s: abs(s - b))
                prior[m, b] = band_tokens[m, near] / band_steps[m, near]
    # Weighted like the cell's offline evidence, so that without live answers nothing changes.
    lean = PRIOR_STEPS * _offline_weight(table)
    smoothed: Floats = np.maximum(1.0, (tokens + lean * prior) / (steps + lean))
    return smoothed


def expected(
    table: RoutingTable, cluster: int, band: int, predicted: Predicted = prompt.NO_PREDICTION
) -> Floats:
    """Return tokens per decode step [m], at least 1, for a prompt of the cluster (-1: of any).

    predicted: what the table's regression says of this prompt.
    """
    cells = acceptance(table)[:, :, band]
    if cluster < 0:
        return np.asarray(cells.mean(axis=0))
    if not predicted:
        return np.asarray(cells[cluster])
    factor = np.exp(prompt.deviations(table, cluster, predicted))
    return np.asarray(np.maximum(1.0, cells[cluster] * factor))


def deviation(
    table: RoutingTable, cluster: int, method: int, band: int, predicted: float | None
) -> float:
    """Return how far a prompt's expected log acceptance lies from its cell's.

    A step emits at least one token, so the deviation never takes acceptance below 1.
    """
    if predicted is None:
        return 0.0
    cell = float(acceptance(table)[cluster, method, band])
    return max(prompt.deviation(table, cluster, method, predicted), -math.log(cell))


@once
def answers(table: RoutingTable) -> Floats:
    """Return the responses [k, m, t] behind every cell, including those borrowed from other
    bands."""
    return np.asarray((counted(table)[0] + _from_other_bands(table)[0]) / ANSWER_TOKENS)


def plain(table: RoutingTable) -> NDArray[np.bool_]:
    """Return which methods [m] emitted one token a step in all evidence, PLAIN_ANSWERS at least.

    Plain decoding's acceptance is 1 without uncertainty.
    """
    tokens = (table.acceptance_tokens + table.live.tokens).sum(axis=(0, 2))
    steps = (table.acceptance_steps + table.live.steps).sum(axis=(0, 2))
    return np.asarray((steps >= PLAIN_ANSWERS * ANSWER_TOKENS) & np.isclose(tokens, steps))


@once
def log_error(table: RoutingTable) -> Floats:
    """Return the standard error [k, m, t] of log predicted seconds, at least LEAST_ERROR.

    Acceptance and step time count as independent.
    """
    known = answers(table)
    elsewhere = np.minimum(CLUSTER_ANSWERS, known.sum(axis=(0, 2)))[None, :, None]
    unknown = (ANSWER_SPREAD / UNKNOWN_SPREAD) ** 2
    accepted = ANSWER_SPREAD**2 / (known + elsewhere + unknown)
    accepted[:, plain(table)] = 0.0
    log_ratio, weight = np.log(table.live.step_ratio), table.live.step_weight
    step = STEP_SPREAD**2 / (weight + STEP_SPREAD**2 / own_variance(log_ratio, weight))
    return np.asarray(np.sqrt(accepted + step[None, :, None] + LEAST_ERROR**2))


def shared_log_ratio(log_ratio: Floats, weight: Floats) -> float:
    """Return the log of the factor that all methods' live times share.

    log_ratio: log ratio of live to profiled time [m]. weight: answers behind each [m]. The result
    is the mean over the methods seen and one more at profiled speed, because a single slow method
    may be slow alone.
    """
    trust = weight / (weight + STEP_PRIOR)
    return float((trust * log_ratio).sum() / (trust.sum() + 1.0))


def own_variance(log_ratio: Floats, weight: Floats) -> float:
    """Return the variance of a method's log ratio around the shared one.

    It adds the spread of the methods seen here to the one measured before (STEP_SPREAD).
    """
    trust = weight / (weight + STEP_PRIOR)
    shared = shared_log_ratio(log_ratio, weight)
    differ = (trust * (log_ratio - shared) ** 2).sum() / max(1.0, float(trust.sum()))
    return float(STEP_SPREAD**2 / STEP_PRIOR + differ)


def _from_other_bands(table: RoutingTable) -> tuple[Floats, Floats]:
    """Return the tokens and steps [k, m, t] that a cell borrows from its other bands.

    They are worth BAND_ANSWERS at most, at the other bands' acceptance times the method's factor
    between the bands. The factor is the geometric mean of the ratios in clusters with evidence in
    both bands, shrunk toward 1 by BAND_PRIOR answers.
    """
    tokens, steps = counted(table)
    weight = tokens / ANSWER_TOKENS
    with np.errstate(divide="ignore", invalid="ignore"):
        level = np.where(steps > 0.0, np.log(tokens / steps), 0.0)
    lent_tokens, lent_steps = np.zeros_like(tokens), np.zeros_like(tokens)
    for band in range(len(TEMPERATURE_BANDS)):
        for other in range(len(TEMPERATURE_BANDS)):
            if other == band:
                continue
            both = np.minimum(weight[:, :, band], weight[:, :, other])
            ratios = level[:, :, band] - level[:, :, other]
            factor = (both * ratios).sum(axis=0) / (both.sum(axis=0) + BAND_PRIOR)
            lent = (
                ANSWER_TOKENS
                * BAND_ANSWERS
                * weight[:, :, other]
                / np.maximum(BAND_ANSWERS, weight.sum(axis=-1) - weight[:, :, band])
            )
            lent /= 1.0 + weight[:, :, band] / BAND_ANSWERS
            lent_tokens[:, :, band] += lent
            lent_steps[:, :, band] += lent / np.exp(level[:, :, other] + factor)
    return lent_tokens, lent_steps


def _offline_weight(table: RoutingTable) -> Floats:
    """Return the share [k, m, t] of the offline evidence that counts.

    It counts as OFFLINE_ANSWERS at most, as less when live answers contradict it by more than the
    spread of both explains, and as less if it is of another head (`Live.profile_share`). The
    distance is an empirical-Bayes estimate of how far the cell's traffic has moved from the
    profile's, believed as far as live answers (MOVED_ANSWERS) support.
    """
    offline = table.acceptance_tokens / ANSWER_TOKENS
    live = table.live.tokens / ANSWER_TOKENS
    variance = ANSWER_SPREAD**2
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        gap = np.log(table.acceptance_tokens / table.acceptance_steps) - np.log(
            table.live.tokens / table.live.steps
        )
        moved = gap**2 - variance / np.minimum(offline, OFFLINE_ANSWERS) - variance / live
    moved = np.maximum(0.0, np.nan_to_num(moved, nan=0.0, neginf=0.0))
    moved *= (live / (live + MOVED_ANSWERS)) ** 2
    kept = variance / (variance / np.clip(offline, 1e-9, OFFLINE_ANSWERS) + moved)
    weight = np.where(offline > 0.0, kept / np.maximum(offline, 1e-9), 1.0)
    return np.asarray(weight * table.live.profile_share[:, None])
