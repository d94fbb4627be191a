"""Trying methods out to learn from them: how likely, and at what price.

Thompson sampling without the samples: what is known of a method's seconds is a log-normal
distribution (`belief.log_error`), and a method is chosen with the very probability that it is the
soonest of all. That probability is computed, not drawn, so a decision's propensity is exact.

What that may cost is kept in a purse (`router.purse`).
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import exp

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from router.purse import START_REQUESTS, Purse, unit_of
from schemas import Objective

Floats = NDArray[np.float64]

GUESS = 0.4
"""A standard error of the log above which a prediction is worth little: of a method without any
answers, or beside one whose steps suddenly take several times longer."""

_SHARES = np.linspace(0.0, 1.0, 257)
"""The edges of 256 cells, as shares of what they divide."""
_DEVIATIONS = 6.0
_LEAST_SECONDS = 1e-9


@dataclass(frozen=True)
class Choice:
    """Which method, the exact probability that it was chosen with, and the seconds of its own that
    the purse paid for it."""

    index: int
    propensity: float
    seconds: float


def choice(
    seconds: Sequence[float] | Floats,
    errors: Sequence[float] | Floats,
    delays: Sequence[float] | Floats,
    margin: float,
    share: float,
    purse: Purse,
    rng: np.random.Generator,
    objective: Objective = "speedup",
) -> Choice:
    """One of the methods with predicted `seconds` [m], standard errors of their logarithms [m] and
    the seconds [m] by which each `delays` others; the first is the one that would be taken if
    nothing were to be learned.

    Another is sooner where it is by more than `margin`: to tell near equals apart is worth nothing.
    `share` of the first one's seconds goes into the purse. A method that the purse cannot pay for,
    were it slower than predicted by a standard error, gives its probability to the first. Where a
    prediction is a GUESS there is no price: while the purse owes nothing the method is tried, and
    as much as the first choice takes is paid until its answer says what it cost. A delay of others
    makes a method later, and is paid for good: no answer says what it really was.
    """
    floored = [max(float(taken), _LEAST_SECONDS) for taken in seconds]
    unit = unit_of(objective, floored[0])
    predicted = [taken / unit for taken in floored]
    first, own_delay = predicted[0], delays[0] / unit
    delayed = [max(0.0, delay / unit - own_delay) for delay in delays]
    purse.earn(share * first)
    guess = [m > 0 and error > GUESS for m, error in enumerate(errors)]
    if any(guess):
        purse.start(START_REQUESTS * first)
    affordable = [
        (0.0 if a_guess else max(0.0, taken * exp(error) + delay - first)) <= purse.units
        for taken, error, delay, a_guess in zip(predicted, errors, delayed, guess, strict=True)
    ]
    rest = [0.0] * (len(predicted) - 1)
    if any(affordable[1:]):
        later = [taken * (1.0 + margin) for taken in predicted[1:]]
        medians = [taken + d for taken, d in zip([first, *later], delayed, strict=True)]
        free = soonest(medians, errors).tolist()
        rest = [c if paid else 0.0 for c, paid in zip(free[1:], affordable[1:], strict=True)]
    chances = [1.0 - sum(rest), *rest]
    index = bisect_right(list(accumulate(chances[:-1])), rng.random())
    extra = max(first if guess[index] else 0.0, predicted[index] - first)
    purse.pay(extra + delayed[index])
    return Choice(index, chances[index], unit * extra)


def soonest(seconds: Sequence[float] | Floats, errors: Sequence[float] | Floats) -> Floats:
    """The probability [m] that each method is the soonest, from medians and the standard errors of
    their logarithms [m] (above 0); independent log-normal distributions. Sums to 1."""
    center, spread = np.log(np.asarray(seconds, dtype=np.float64)), np.asarray(errors)
    low = (center - _DEVIATIONS * spread).min()
    # whoever is the soonest is sooner than the upper end of every method
    high = (center + _DEVIATIONS * spread).min()
    edges = low + (high - low) * _SHARES
    done = ndtr((edges - center[:, None]) / spread[:, None])
    later = 1.0 - done
    # that all methods before it are later, and all behind it
    before, behind = np.ones_like(later), np.ones_like(later)
    np.cumprod(later[:-1], axis=0, out=before[1:])
    np.cumprod(later[:0:-1], axis=0, out=behind[-2::-1])
    others = before * behind
    chances = ((done[:, 1:] - done[:, :-1]) * (others[:, 1:] + others[:, :-1])).sum(axis=1)
    return np.asarray(chances / chances.sum())
