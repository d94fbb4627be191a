"""Distances of answers from the target's distribution, in nats per token."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SHARPER = (0.4, 0.55, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0)
"""Factors by which p is sharpened (above 1) or flattened: the temperature is divided by them."""
RESAMPLES = 2000


@dataclass(frozen=True)
class Reading:
    """The target's scores of an answer's tokens, each given those before it.

    nats: [tokens] -log p of the token. expected: [tokens] the expected -log p of a token drawn from
    p, its entropy; at temperature 0, -log p of the most likely token. gains: [tokens, len(SHARPER)]
    the gain in log p if p is sharpened that much. p is under the request's temperature, at
    temperature 0 under 1.
    """

    nats: Floats
    expected: Floats
    gains: Floats


def excess_nats(readings: Sequence[Reading], seed: int) -> tuple[float, tuple[float, float]]:
    """Return the mean of -log p(token) - H(p) per token, and its 95% interval.

    With q for the method's distribution, it estimates the mean of KL(q || p) + H(q) - H(p). It is 0
    for samples from p, and below 0 for methods that prefer likely tokens.
    """
    excess = np.array([float((one.nats - one.expected).sum()) for one in readings])
    tokens = np.array([one.nats.size for one in readings])
    return _with_interval(lambda drawn: excess[drawn].sum(-1) / tokens[drawn].sum(-1), tokens, seed)


def nats_over_plain(
    readings: Sequence[Reading], plain: Sequence[Reading], seed: int
) -> tuple[float, tuple[float, float]]:
    """Return -log p per token minus that of plain decoding's answers, and its 95% interval.

    It estimates KL(Q || P) + H(Q) - H(P) of whole answers per token, if lengths agree.
    """
    nats, tokens = _sums(readings)
    plain_nats, plain_tokens = _sums(plain)

    def over(drawn: NDArray[np.int64]) -> Floats:
        own = nats[drawn].sum(-1) / tokens[drawn].sum(-1)
        return np.asarray(own - plain_nats[drawn].sum(-1) / plain_tokens[drawn].sum(-1))

    return _with_interval(over, tokens, seed)


def kl_at_least(readings: Sequence[Reading], seed: int) -> tuple[float, tuple[float, float], float]:
    """Return a lower bound of the mean KL(q || p) per token, its 95% interval, and its sharpness.

    For temperatures above 0. For any other distribution s, KL(q || p) >= E_q[log s - log p]; the
    gap is KL(q || s). The candidates s are the target's distributions at other temperatures, p
    included, so the bound is never below 0. Choosing the best s on the judged tokens adds at most
    half a nat over all of them, on average.
    """
    gains = np.array([one.gains.sum(0) for one in readings])
    tokens = np.array([one.nats.size for one in readings])

    def best(drawn: NDArray[np.int64]) -> Floats:
        return np.asarray(
            (gains[drawn].sum(1) / tokens[drawn].sum(1)[:, None]).max(-1, initial=0.0)
        )

    return *_with_interval(best, tokens, seed), SHARPER[int(gains.sum(0).argmax())]


def _sums(readings: Sequence[Reading]) -> tuple[Floats, NDArray[np.int64]]:
    nats = np.array([float(one.nats.sum()) for one in readings])
    return nats, np.array([one.nats.size for one in readings])


def _with_interval(
    statistic: Callable[[NDArray[np.int64]], Floats], answers: NDArray[np.int64], seed: int
) -> tuple[float, tuple[float, float]]:
    """A statistic of all answers, and of answers drawn with replacement; it takes indices [n,
    answers]."""
    every = np.arange(len(answers))[None, :]
    return float(statistic(every)[0]), _interval(statistic(_drawn(len(answers), seed)))


def _drawn(answers: int, seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, answers, (RESAMPLES, answers))


def _interval(values: Floats) -> tuple[float, float]:
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)
