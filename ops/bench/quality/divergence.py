"""How far answers are from the target's distribution, in nats a token."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SHARPER = (0.4, 0.55, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0)
"""By how much p is made sharper (above 1) or flatter, in search of what explains an answer better:
the temperature is divided by it."""
RESAMPLES = 2000


@dataclass(frozen=True)
class Reading:
    """What the target makes of an answer's tokens, each given those before.

    nats: [tokens] -log p of the token. expected: [tokens] its mean were the token the target's own,
    p's entropy; at temperature 0, -log p of p's favourite. gains: [tokens, len(SHARPER)] by how
    much log p of the token rises with p that much sharper. p is under the request's temperature,
    at temperature 0 under 1.
    """

    nats: Floats
    expected: Floats
    gains: Floats


def excess_nats(readings: Sequence[Reading], seed: int) -> tuple[float, tuple[float, float]]:
    """-log p of the tokens less what the target's own would have at the very same places, a token,
    and its 95% interval.

    With q for what a method draws from at a place, it estimates the mean of KL(q || p) + H(q) -
    H(p). 0 for whatever draws from p; below 0 for what prefers likely tokens.
    """
    excess = np.array([float((one.nats - one.expected).sum()) for one in readings])
    tokens = np.array([one.nats.size for one in readings])
    return _with_interval(lambda drawn: excess[drawn].sum(-1) / tokens[drawn].sum(-1), tokens, seed)


def nats_over_plain(
    readings: Sequence[Reading], plain: Sequence[Reading], seed: int
) -> tuple[float, tuple[float, float]]:
    """-log p of the tokens of these answers, a token, less that of plain decoding's to the same
    prompts, and its 95% interval.

    It estimates KL(Q || P) + H(Q) - H(P) of whole answers, a token, but for lengths that differ.
    """
    nats, tokens = _sums(readings)
    plain_nats, plain_tokens = _sums(plain)

    def over(drawn: NDArray[np.int64]) -> Floats:
        own = nats[drawn].sum(-1) / tokens[drawn].sum(-1)
        return np.asarray(own - plain_nats[drawn].sum(-1) / plain_tokens[drawn].sum(-1))

    return _with_interval(over, tokens, seed)


def kl_at_least(readings: Sequence[Reading], seed: int) -> tuple[float, tuple[float, float], float]:
    """A lower bound of the mean KL(q || p) of a token, for temperatures above 0, its 95% interval,
    and the sharpness that gives it.

    For any other distribution s, KL(q || p) >= E_q[log s - log p] (what is missing is KL(q || s));
    s are the target's own distributions at other temperatures, p among them, so that it is never
    below 0. The best one is chosen on the tokens that it is judged on, which adds no more than half
    a nat over all of them, on the mean.
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
