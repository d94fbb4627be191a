"""What the evidence in a routing table says of acceptance, and how far it may be off.

Evidence is counted in answers, since answers of one cluster differ by far more than the steps of
one answer do. A cell (cluster, method, temperature band) leans on what is near to it: the profile's
answers on the live ones, its band on the cell's other bands, its cluster on all others.
"""

import functools
import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from router import regression
from router.regression import Foretold
from schemas import TEMPERATURE_BANDS, RoutingTable

Floats = NDArray[np.float64]
Found = TypeVar("Found")

PRIOR_STEPS = 50.0
"""Steps of a method's acceptance over all clusters that every cell starts with, so that a cell
with three answers in it does not decide anything."""

ANSWER_TOKENS = 32.0
"""Tokens of evidence that are worth one answer."""

OFFLINE_ANSWERS = 16.0
"""Offline evidence counts as at most so many answers beside live ones: however much was measured,
live traffic may differ from it by a tenth (ANSWER_SPREAD / sqrt(16))."""

ANSWER_SPREAD = 0.4
"""Standard deviation of an answer's log acceptance around its cluster's: 0.17 to 0.43 for the
methods that speculate, measured on the demo family. Answers differ by far more than the steps of
one answer do, so evidence is counted in answers."""

CLUSTER_ANSWERS = 4.0
"""Answers' worth of what the other clusters say of a cell: its log acceptance lies within 0.2 of
the method's mean over clusters (0.06 to 0.29 there), which is ANSWER_SPREAD / sqrt(4)."""

MOVED_ANSWERS = 8.0
"""Live answers from which on a gap between them and the profile is believed to be a movement of
the cell's traffic; one short answer that went well overrules nothing."""

BAND_ANSWERS = 8.0
"""Answers' worth at most of what a cell's other temperature bands say of one without answers of its
own, and half as much of one with so many."""

BAND_PRIOR = 16.0
"""Answers' worth of belief that temperature changes nothing, in a method's factor for a band."""

PLAIN_ANSWERS = 16.0
"""Answers without an accepted token after which a method is taken for one that drafts nothing."""

UNKNOWN_SPREAD = 0.7
"""Standard deviation of the log acceptance of a method of which no answer is known at all: methods
that speculate emit one to four tokens a step."""

STEP_SPREAD = 0.15
"""Standard deviation of an answer's log step time around its method's: 0.16 to 0.18 there, of
which contexts of different lengths are a part."""

STEP_PRIOR = 0.5
"""Answers' worth of belief that a method's steps are as fast as measured, beside those of the other
methods on this machine: within a fifth of it (STEP_SPREAD / sqrt(0.5))."""

LEAST_ERROR = 0.05
"""No prediction's standard error is below this, however many answers are behind it: the traffic of
tomorrow is not the one that was counted."""


def once(compute: Callable[[RoutingTable], Found]) -> Callable[[RoutingTable], Found]:
    """The function, computed once for each table in force: every prompt asks for it."""
    last: tuple[RoutingTable, Found] | None = None

    def remembered(table: RoutingTable) -> Found:
        nonlocal last
        known = last  # looked at once: another thread may ask about another table
        if known is None or known[0] is not table:
            known = last = (table, compute(table))
            if isinstance(known[1], np.ndarray):
                known[1].flags.writeable = False
        return known[1]

    return functools.wraps(compute)(remembered)


def evidence(table: RoutingTable) -> tuple[Floats, Floats]:
    """Tokens and steps [k, m, t] behind every cell's acceptance: offline, capped, plus live."""
    weight = _offline_weight(table)
    return (
        weight * table.acceptance_tokens + table.live_tokens,
        weight * table.acceptance_steps + table.live_steps,
    )


@once
def acceptance(table: RoutingTable) -> Floats:
    """Tokens per decode step [k, m, t], at least 1.

    A cell leans on what the same cluster's other temperature bands say (`_from_other_bands`), then
    on its method's mean over clusters in the same band, a band without evidence on the nearest one
    that has some, a method without any on plain decoding's 1.
    """
    tokens, steps = (
        own + other for own, other in zip(evidence(table), _from_other_bands(table), strict=True)
    )
    # No cluster speaks for the others with all its live answers: those that a method gets most
    # prompts from are those it is good at.
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
    # Capped together with the cell's offline evidence: without live answers nothing changes.
    lean = PRIOR_STEPS * _offline_weight(table)
    smoothed: Floats = np.maximum(1.0, (tokens + lean * prior) / (steps + lean))
    return smoothed


def expected(
    table: RoutingTable, cluster: int, band: int, said: Foretold = regression.NOTHING
) -> Floats:
    """Tokens per decode step [m], at least 1, of a prompt of the cluster (-1: of any) of which the
    regression has `said` so much."""
    cells = acceptance(table)[:, :, band]
    if cluster < 0:
        return np.asarray(cells.mean(axis=0))
    if not said:
        return np.asarray(cells[cluster])
    factor = np.exp(regression.deviations(table, cluster, said))
    return np.asarray(np.maximum(1.0, cells[cluster] * factor))


def deviation(
    table: RoutingTable, cluster: int, method: int, band: int, said: float | None
) -> float:
    """Log of what is expected of a prompt over its cell, of which the regression has `said` so
    much: no step emits less than one token, and what is expected and comes teaches the cell nothing
    new."""
    cell = float(acceptance(table)[cluster, method, band])
    return max(regression.deviation(table, cluster, method, said), -math.log(cell))


@once
def answers(table: RoutingTable) -> Floats:
    """Answers' worth of evidence [k, m, t] behind every cell's acceptance, what other bands lend
    included."""
    return np.asarray((evidence(table)[0] + _from_other_bands(table)[0]) / ANSWER_TOKENS)


def plain(table: RoutingTable) -> NDArray[np.bool_]:
    """Which methods [m] emit a token a step, by PLAIN_ANSWERS and all other evidence there is:
    plain decoding's acceptance is 1 and has no uncertainty."""
    tokens = (table.acceptance_tokens + table.live_tokens).sum(axis=(0, 2))
    steps = (table.acceptance_steps + table.live_steps).sum(axis=(0, 2))
    return np.asarray((steps >= PLAIN_ANSWERS * ANSWER_TOKENS) & np.isclose(tokens, steps))


@once
def log_error(table: RoutingTable) -> Floats:
    """Standard error [k, m, t] of the logarithm of predicted seconds: of acceptance and step time
    together, as independent, and never below LEAST_ERROR."""
    known = answers(table)
    elsewhere = np.minimum(CLUSTER_ANSWERS, known.sum(axis=(0, 2)))[None, :, None]
    unknown = (ANSWER_SPREAD / UNKNOWN_SPREAD) ** 2
    accepted = ANSWER_SPREAD**2 / (known + elsewhere + unknown)
    accepted[:, plain(table)] = 0.0
    log_ratio, weight = np.log(table.live_step_ratio), table.live_step_weight
    step = STEP_SPREAD**2 / (weight + STEP_SPREAD**2 / own_variance(log_ratio, weight))
    return np.asarray(np.sqrt(accepted + step[None, :, None] + LEAST_ERROR**2))


def machine_log_ratio(log_ratio: Floats, weight: Floats) -> float:
    """The log of a factor that all methods' seconds share, from each one's log ratio to what was
    measured [m] and the answers behind it [m].

    One method that is slower than measured may be alone in it, so what is shared is the mean over
    those that were seen and one more that is as fast as measured.
    """
    trust = weight / (weight + STEP_PRIOR)
    return float((trust * log_ratio).sum() / (trust.sum() + 1.0))


def own_variance(log_ratio: Floats, weight: Floats) -> float:
    """Variance of a method's log ratio around the machine's factor: what was seen before of steps,
    and how far the methods seen here differ from it."""
    trust = weight / (weight + STEP_PRIOR)
    shared = machine_log_ratio(log_ratio, weight)
    differ = (trust * (log_ratio - shared) ** 2).sum() / max(1.0, float(trust.sum()))
    return float(STEP_SPREAD**2 / STEP_PRIOR + differ)


def _from_other_bands(table: RoutingTable) -> tuple[Floats, Floats]:
    """Tokens and steps [k, m, t] that a cell's other bands are worth in this one: BAND_ANSWERS at
    most, and their acceptance times the method's factor between the bands.

    The factor is learned from the clusters with evidence in both bands: the geometric mean of
    their ratios, shrunk by BAND_PRIOR answers' worth of 1.
    """
    tokens, steps = evidence(table)
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
    """What share [k, m, t] of the offline evidence counts.

    At most OFFLINE_ANSWERS; and what live answers contradict, by more than the spread of both
    explains, counts for as little as its distance from them: an empirical-Bayes estimate of how
    far this cell's traffic has moved from the profile's, believed as far as there are answers
    (MOVED_ANSWERS) behind it.
    """
    offline = table.acceptance_tokens / ANSWER_TOKENS
    live = table.live_tokens / ANSWER_TOKENS
    variance = ANSWER_SPREAD**2
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        gap = np.log(table.acceptance_tokens / table.acceptance_steps) - np.log(
            table.live_tokens / table.live_steps
        )
        moved = gap**2 - variance / np.minimum(offline, OFFLINE_ANSWERS) - variance / live
    moved = np.maximum(0.0, np.nan_to_num(moved, nan=0.0, neginf=0.0))
    moved *= (live / (live + MOVED_ANSWERS)) ** 2
    counted = variance / (variance / np.clip(offline, 1e-9, OFFLINE_ANSWERS) + moved)
    return np.asarray(np.where(offline > 0.0, counted / np.maximum(offline, 1e-9), 1.0))
