"""What methods accept: what the profile says, and a posterior over how far serving is from it.

The logarithm of a response's tokens per decode step, minus that of the table's, is modelled as

    method + condition + cluster + noise

for each method: an offset of the method everywhere, one in each condition (the temperature bands,
and requests with a grammar), one in each cluster. All are normal. The offsets of the method and of
the clusters are either small, because the table is right, or large, because it is wrong there: a
mixture of two widths, weighted by the evidence. So noise moves little while the table is right, and
a few clear responses move much when it is not.

What was seen enters as sums by cell, so neither the order of responses nor their delay matters.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from router import prompt
from router.prompt import Predicted
from schemas import TEMPERATURE_BANDS, RoutingTable

Floats = NDArray[np.float64]
Found = TypeVar("Found")

ANSWER_TOKENS = 32.0
"""Profiled tokens that count as one response."""

PRIOR_ANSWERS = 4.0
"""Responses as which the mean over all clusters counts in each cluster's figures."""

HALF_LIFE = 25.0
"""Responses after which earlier ones count half; profiled ones count as at most so many."""

NOISE = 0.35
"""Standard deviation of a response's log acceptance around its cluster's: 0.17 to 0.43."""

STEPS_OF_NOISE = 4.0
"""Decode steps at which the chance within a response adds as much variance again."""

OUTLIER = 3.0
"""Standard deviations from which on a response says that something has changed."""

RIGHT, WRONG, WRONG_SHARE = 0.03, 0.7, 0.05
"""Standard deviations of an offset where the table is right or wrong, and how often it is wrong."""

UNKNOWN = 0.25
"""Standard deviation of an offset of a condition, or in a full batch, without measurements."""


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


def profiled(table: RoutingTable) -> Floats:
    """Return the profile's tokens per decode step [k, m, c], at least 1.

    A cell is shrunk toward the method's mean over clusters in its band. A band without counts takes
    the nearest band's acceptance, times the mean ratio of the other methods between both bands.
    With a grammar the greedy band counts.
    """
    tokens, steps = table.acceptance_tokens, table.acceptance_steps
    whole_tokens, whole_steps = tokens.sum(axis=0), steps.sum(axis=0)
    counted = whole_steps > 0.0
    mean = np.where(counted, whole_tokens / np.maximum(whole_steps, 1e-9), 1.0)
    prior = PRIOR_ANSWERS * ANSWER_TOKENS
    cells = np.maximum(1.0, (tokens + prior) / (steps + prior / mean))
    bands = range(len(TEMPERATURE_BANDS))
    plain = plain_methods(table)
    for m in range(len(table.methods)):
        seen = [b for b in bands if counted[m, b]]
        for band in bands:
            if counted[m, band] or not seen:
                continue
            near = min(seen, key=lambda other: abs(other - band))
            both = counted[:, near] & counted[:, band] & ~plain
            ratio = np.log(mean[both, band] / mean[both, near]).mean() if both.any() else 0.0
            cells[:, m, band] = np.maximum(1.0, cells[:, m, near] * np.exp(ratio))
    return np.concatenate([cells, cells[:, :, :1]], axis=2)


def plain_methods(table: RoutingTable) -> NDArray[np.bool_]:
    """Return which methods [m] emitted one token a step throughout the profile.

    They decode plainly: their acceptance is 1 without uncertainty.
    """
    tokens = table.acceptance_tokens.sum(axis=(0, 2))
    steps = table.acceptance_steps.sum(axis=(0, 2))
    return np.asarray((steps > 0.0) & np.isclose(tokens, steps))


@once
def acceptance(table: RoutingTable) -> Floats:
    """Return the expected tokens per decode step [k, m, c], at least 1."""
    return np.asarray(np.maximum(1.0, profiled(table) * np.exp(table.live.gain)))


def expected(
    table: RoutingTable, cluster: int, condition: int, predicted: Predicted = prompt.NO_PREDICTION
) -> Floats:
    """Return tokens per decode step [m], at least 1, for a prompt of the cluster (-1: of any).

    predicted: what the table's regression says of this prompt.
    """
    cells = acceptance(table)[:, :, condition]
    if cluster < 0:
        return np.asarray(cells.mean(axis=0))
    if not predicted:
        return np.asarray(cells[cluster])
    apart = prompt.deviations(table, cluster, predicted)
    factors = np.exp([apart.get(name, 0.0) for name in table.methods])
    return np.asarray(np.maximum(1.0, cells[cluster] * factors))


def learns_acceptance(looping: bool, lossless: bool) -> bool:
    """Return whether a response counts for acceptance.

    A lossy method's loops are its own and would flatter it. A lossless method's loops are the
    target's, and it really finishes them sooner.
    """
    return lossless or not looping


def positive_part(mean: float, deviation: float) -> float:
    """Return the mean of the positive part of a normal variable."""
    if deviation <= 0.0:
        return max(0.0, mean)
    z = mean / deviation
    density = math.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi)
    return mean * 0.5 * (1.0 + math.erf(z / math.sqrt(2.0))) + deviation * density


class Posterior(NamedTuple):
    """Offsets of a method's log acceptance from the profile's.

    gain, error [k, c]: mean and standard deviation. shared: standard deviation of what all clusters
    share.
    """

    gain: Floats
    error: Floats
    shared: float


def posterior(
    table: RoutingTable, m: int, weight: Floats, total: Floats, doubted: float
) -> Posterior:
    """Return what responses of a method (by index) say about its offsets.

    weight [k, c]: responses in each cell. total [k, c]: the sum of their log acceptance over the
    profile's. doubted: least probability that the table is wrong about the method, above
    WRONG_SHARE where another head drafts than the profiled one.
    """
    if plain_methods(table)[m]:
        return Posterior(np.zeros_like(weight), np.zeros_like(weight), 0.0)
    answers = table.acceptance_tokens[:, m] / ANSWER_TOKENS
    counted = np.append(answers.sum(axis=0) > 0.0, False)
    own = np.where(counted, RIGHT, UNKNOWN)
    narrow = RIGHT**2 + NOISE**2 / (answers.sum(axis=1) + PRIOR_ANSWERS)
    wrong = max(WRONG_SHARE, doubted) if counted.any() else 1.0
    seen = _Cells(weight / NOISE**2, total / NOISE**2)
    cluster = narrow + WRONG_SHARE * WRONG**2
    for _ in range(2):  # how wide a cluster's offset is depends on what all clusters share
        mean, covariance = _shared(seen, cluster, own, wrong)
        cluster = _widths(seen, mean, narrow)
    often = seen.precision.sum(axis=0) + 1e-9
    shared = float(np.sqrt(often @ covariance @ often) / often.sum())
    return Posterior(*_cells(seen, cluster, mean, covariance), shared)


class _Cells(NamedTuple):
    """One method's responses [k, c]: precision of their mean, and precision times mean."""

    precision: Floats
    total: Floats


def _shared(seen: _Cells, cluster: Floats, own: Floats, wrong: float) -> tuple[Floats, Floats]:
    """Return mean [c] and covariance [c, c] of the method's offset in each condition.

    cluster [k]: variances of the clusters' offsets, which are integrated out. own [c]: standard
    deviations of the conditions'. wrong: probability that the method's offset is a large one.
    """
    precision, total = seen
    trust = 1.0 / (precision.sum(axis=1) + 1.0 / cluster)
    information = np.diag(precision.sum(axis=0)) - (precision.T * trust) @ precision
    score = total.sum(axis=0) - precision.T @ (trust * total.sum(axis=1))
    means, covariances, evidence = [], [], []
    for width, share in ((RIGHT, 1.0 - wrong), (WRONG, wrong)):
        prior = width**2 + np.diag(own**2)
        inverse = np.linalg.inv(prior)
        covariance = np.linalg.inv(inverse + information)
        means.append(covariance @ score)
        covariances.append(covariance)
        evidence.append(
            np.log(max(share, 1e-12))
            + 0.5 * (np.linalg.slogdet(covariance)[1] - np.linalg.slogdet(prior)[1])
            + 0.5 * score @ covariance @ score
        )
    chance = np.exp(np.asarray(evidence) - max(evidence))
    chance /= chance.sum()
    mean = chance @ np.asarray(means)
    apart = np.asarray(means) - mean
    spread = sum(
        p * (c + np.outer(a, a)) for p, c, a in zip(chance, covariances, apart, strict=True)
    )
    return mean, np.asarray(spread)


def _widths(seen: _Cells, mean: Floats, narrow: Floats) -> Floats:
    """Return the variance [k] of each cluster's offset: `narrow` or WRONG, by the evidence."""
    precision = seen.precision.sum(axis=1)
    known = np.maximum(precision, 1e-9)
    distance = (seen.total - seen.precision * mean).sum(axis=1) / known
    log_density = [
        -0.5 * np.log(variance + 1.0 / known) - 0.5 * distance**2 / (variance + 1.0 / known)
        for variance in (narrow, narrow + WRONG**2)
    ]
    odds = np.exp(np.minimum(50.0, log_density[1] - log_density[0]))
    odds *= WRONG_SHARE / (1.0 - WRONG_SHARE)
    return np.asarray(narrow + WRONG**2 * odds / (1.0 + odds))


def _cells(
    seen: _Cells, cluster: Floats, mean: Floats, covariance: Floats
) -> tuple[Floats, Floats]:
    """Return mean and standard deviation [k, c] of each cell's offset."""
    precision = seen.precision.sum(axis=1) + 1.0 / cluster
    share = seen.precision / precision[:, None]
    offset = (seen.total.sum(axis=1) / precision) - share @ mean
    gradient = np.eye(len(mean)) - share[:, None, :]
    variance = np.einsum("kci,ij,kcj->kc", gradient, covariance, gradient)
    return mean + offset[:, None], np.sqrt(variance + 1.0 / precision[:, None])
