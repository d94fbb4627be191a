"""Trying methods out to learn from them: how likely, and at what price.

Thompson sampling without the samples: what is known of a method's seconds is a log-normal
distribution (`predict.log_error`), and a method is chosen with the very probability that it is the
soonest of all. That probability is computed, not drawn, so a decision's propensity is exact.

What it may cost is kept in a purse: every request that may be used to learn puts a share of its
predicted seconds in, and a choice that is predicted to take longer takes the difference out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Floats = NDArray[np.float64]

PURSE_REQUESTS = 100.0
"""A purse holds at most what so many requests like the present one put in: at a share of 3% that
pays for one answer of a method that is four times slower. More would be spent all at once when
the traffic changes."""

_CELLS = 256
_DEVIATIONS = 6.0
_LEAST_SECONDS = 1e-9


class Purse:
    """What one ingress may spend on learning, in predicted seconds; empty at first, so that at
    no time more has been spent than the share of what was predicted."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def earn(self, seconds: float) -> None:
        """One request's contribution. It never takes away what dearer requests have put in."""
        limit = max(self.seconds, PURSE_REQUESTS * seconds)
        self.seconds = min(limit, self.seconds + seconds)

    def pay(self, seconds: float) -> None:
        """Raises ValueError where the purse does not hold so much."""
        if seconds > self.seconds:
            raise ValueError(f"the purse holds {self.seconds} s, asked for {seconds} s")
        self.seconds -= seconds


@dataclass(frozen=True)
class Choice:
    """Which method, the exact probability that it was chosen with, and the seconds that the purse
    paid for it."""

    index: int
    propensity: float
    seconds: float


def choice(
    seconds: Sequence[float] | Floats,
    errors: Sequence[float] | Floats,
    margin: float,
    share: float,
    purse: Purse,
    rng: np.random.Generator,
) -> Choice:
    """One of the methods with predicted `seconds` [m] and standard errors of their logarithms [m];
    the first is the one that would be taken if nothing were to be learned.

    Another is sooner where it is by more than `margin`: to tell near equals apart is worth nothing.
    `share` of the first one's seconds goes into the purse. A method whose extra seconds the purse
    cannot pay gives its probability to the first; one that is not predicted slower is free.
    """
    predicted = np.maximum(np.asarray(seconds, dtype=np.float64), _LEAST_SECONDS)
    purse.earn(share * float(predicted[0]))
    extra = np.maximum(0.0, predicted - predicted[0])
    handicap = np.where(np.arange(len(predicted)) == 0, 1.0, 1.0 + margin)
    chances = np.where(extra <= purse.seconds, soonest(predicted * handicap, errors), 0.0)
    chances[0] += 1.0 - chances.sum()
    index = int(np.searchsorted(np.cumsum(chances)[:-1], rng.random(), side="right"))
    purse.pay(float(extra[index]))
    return Choice(index, float(chances[index]), float(extra[index]))


def soonest(seconds: Sequence[float] | Floats, errors: Sequence[float] | Floats) -> Floats:
    """The probability [m] that each method is the soonest, from medians and the standard errors of
    their logarithms [m] (above 0); independent log-normal distributions. Sums to 1."""
    center, spread = np.log(np.asarray(seconds, dtype=np.float64)), np.asarray(errors)
    low = (center - _DEVIATIONS * spread).min()
    # whoever is the soonest is sooner than the upper end of every method
    high = (center + _DEVIATIONS * spread).min()
    edges = np.linspace(low, high, _CELLS + 1)
    done = ndtr((edges[:, None] - center) / spread)
    chances = np.empty(len(center))
    for m in range(len(center)):
        others_later = np.prod(1.0 - np.delete(done, m, axis=1), axis=1)
        chances[m] = np.diff(done[:, m]) @ (others_later[1:] + others_later[:-1]) / 2.0
    return np.asarray(chances / chances.sum())
