"""Trying methods out to learn from them: how likely, and at what price.

Thompson sampling without the samples: what is known of a method's seconds is a log-normal
distribution (`belief.log_error`), and a method is chosen with the very probability that it is the
soonest of all. That probability is computed, not drawn, so a decision's propensity is exact.

What that may cost is kept in a purse (`router.purse`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from router.purse import START_REQUESTS, Purse, unit_of
from schemas import Objective

Floats = NDArray[np.float64]

GUESS = 0.4
"""A standard error of the log above which a prediction is worth little: of a method without any
answers, or beside one whose steps suddenly take several times longer."""

_CELLS = 256
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
    predicted = np.maximum(np.asarray(seconds, dtype=np.float64), _LEAST_SECONDS)
    unit = unit_of(objective, float(predicted[0]))
    predicted /= unit
    delayed = np.asarray(delays, dtype=np.float64) / unit
    delayed = np.maximum(0.0, delayed - delayed[0])
    purse.earn(share * float(predicted[0]))
    guess = np.asarray(errors) > GUESS
    guess[0] = False
    if guess.any():
        purse.start(START_REQUESTS * float(predicted[0]))
    extra = np.maximum(0.0, predicted - predicted[0])
    extra[guess] = np.maximum(extra[guess], predicted[0])
    handicap = np.where(np.arange(len(predicted)) == 0, 1.0, 1.0 + margin)
    at_risk = np.maximum(0.0, predicted * np.exp(errors) + delayed - predicted[0])
    affordable = np.where(guess, purse.units >= 0.0, at_risk <= purse.units)
    if affordable[1:].any():
        chances = np.where(affordable, soonest(predicted * handicap + delayed, errors), 0.0)
        chances[0] += 1.0 - chances.sum()
    else:
        chances = np.eye(1, len(predicted))[0]
    index = int(np.searchsorted(np.cumsum(chances)[:-1], rng.random(), side="right"))
    purse.pay(float(extra[index] + delayed[index]))
    return Choice(index, float(chances[index]), unit * float(extra[index]))


def soonest(seconds: Sequence[float] | Floats, errors: Sequence[float] | Floats) -> Floats:
    """The probability [m] that each method is the soonest, from medians and the standard errors of
    their logarithms [m] (above 0); independent log-normal distributions. Sums to 1."""
    center, spread = np.log(np.asarray(seconds, dtype=np.float64)), np.asarray(errors)
    low = (center - _DEVIATIONS * spread).min()
    # whoever is the soonest is sooner than the upper end of every method
    high = (center + _DEVIATIONS * spread).min()
    edges = np.linspace(low, high, _CELLS + 1)
    done = ndtr((edges - center[:, None]) / spread[:, None])
    later = 1.0 - done
    chances = np.empty(len(center))
    for m in range(len(center)):
        others_later = later[:m].prod(axis=0) * later[m + 1 :].prod(axis=0)
        chances[m] = (done[m, 1:] - done[m, :-1]) @ (others_later[1:] + others_later[:-1]) / 2.0
    return np.asarray(chances / chances.sum())
