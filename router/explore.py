"""Trying methods out to learn from them: how likely, and at what price.

Thompson sampling without the samples: what is known of a method's seconds is a log-normal
distribution (`belief.log_error`), and a method is chosen with the very probability that it is the
soonest of all. That probability is computed, not drawn, so a decision's propensity is exact.

What it may cost is kept in a purse: every request that may be used to learn puts a share of its
predicted seconds in, and a choice that is predicted to take longer takes the difference out. When
the answer has come the books are put right: what was tried out has cost what it took more than the
first choice would have taken, and methods that are tried because they look sooner than they are
(the winner's curse) are paid for like any other.
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

GUESS = 0.4
"""A standard error of the log above which a prediction is worth little: of a method without any
answers, or beside one whose steps suddenly take several times longer."""

_CELLS = 256
_DEVIATIONS = 6.0
_LEAST_SECONDS = 1e-9


class Purse:
    """What one ingress may spend on learning, in seconds; empty at first. Below zero, after trials
    that cost more than was predicted, nothing is tried until requests have filled it again."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._limit = 0.0
        self._took = self._predicted = 0.0

    def earn(self, seconds: float) -> None:
        """One request's contribution. It never takes away what dearer requests have put in."""
        self._limit = PURSE_REQUESTS * seconds
        self._add(seconds)

    def first_choice_took(self, seconds: float, predicted: float) -> None:
        """An answer that nothing was tried with took so long and, of its length, was predicted to
        take so long: predictions that are off for all alike are corrected by it."""
        forget = 0.5 ** (1.0 / PURSE_REQUESTS)
        self._took = forget * self._took + seconds
        self._predicted = forget * self._predicted + predicted

    def settle(self, paid: float, seconds: float, first: float) -> None:
        """A trial that `paid` was taken out for took `seconds`; the first choice was predicted,
        for an answer of this length, to take `first`."""
        right = self._took / self._predicted if self._predicted > 0.0 else 1.0
        self._add(paid - (seconds - right * first))

    def _add(self, seconds: float) -> None:
        self.seconds = min(max(self.seconds, self._limit), self.seconds + seconds)

    def pay(self, seconds: float) -> None:
        """A trial is predicted to take so much longer than the first choice."""
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
    `share` of the first one's seconds goes into the purse. A method that the purse cannot pay for,
    were it slower than predicted by a standard error, gives its probability to the first; but where
    a prediction is a GUESS it is tried at any price, since it cannot be priced before.
    """
    predicted = np.maximum(np.asarray(seconds, dtype=np.float64), _LEAST_SECONDS)
    purse.earn(share * float(predicted[0]))
    extra = np.maximum(0.0, predicted - predicted[0])
    handicap = np.where(np.arange(len(predicted)) == 0, 1.0, 1.0 + margin)
    at_risk = np.maximum(0.0, predicted * np.exp(errors) - predicted[0])
    affordable = (at_risk <= purse.seconds) | (np.asarray(errors) > GUESS)
    chances = np.where(affordable, soonest(predicted * handicap, errors), 0.0)
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
