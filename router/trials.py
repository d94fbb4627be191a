"""Trying methods out to learn from them: how likely, and at what price.

This is Thompson sampling with computed probabilities. What is known about a method's seconds is a
log-normal distribution (`evidence.log_error`), and a method is chosen with the probability that it
is the fastest of all. The probability is computed, not sampled, so a decision's propensity is
exact.

Trials are paid for from an exploration budget. Each request that may be used to learn adds a share
of its predicted seconds; a choice predicted to take longer subtracts the difference. When the
answer has arrived, the predicted price is replaced by the real one, so methods that are tried
because they look faster than they are (the winner's curse) are paid for as well.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import exp
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from router import evidence, favourites, predict
from schemas import (
    Decision,
    DecodeStats,
    Objective,
    RouterConfig,
    RoutingTable,
    temperature_band,
)

Floats = NDArray[np.float64]

GUESS = 0.4
"""Standard error of log seconds above which a prediction is a guess: for a method without answers,
or after a method's steps suddenly take several times longer."""

BUDGET_REQUESTS = 100.0
"""The budget holds at most what this many requests add, on the mean of about as many. At a share of
3% that pays for one response of a method that is four times slower; more would be spent at once
when traffic changes. Debts have the same limit, so one stalled answer does not end learning."""

START_REQUESTS = 8.0
"""Requests' worth of the first choice that the budget gets once, in advance, when it first meets a
method without evidence: without a trial there is nothing to learn from."""

_SHARES = np.linspace(0.0, 1.0, 257)
"""Edges of 256 integration cells, as shares of the interval."""
_DEVIATIONS = 6.0
_LEAST_SECONDS = 1e-9


class Option(NamedTuple):
    """A method that may be tried.

    seconds: predicted, its own. error: standard error of their logarithm. delay: seconds by which
    it delays other requests.
    """

    seconds: float
    error: float
    delay: float


@dataclass(frozen=True)
class Choice:
    """The index of the chosen option, its exact probability, and the seconds that were paid."""

    index: int
    propensity: float
    seconds: float


class ExplorationBudget:
    """One ingress's part of what may be spent on learning, in units (`unit_of`); empty at first.

    Below zero, after trials that cost more than predicted, nothing is tried until requests have
    filled it again.
    """

    def __init__(self) -> None:
        self.units = 0.0
        self._requests = 0
        self._latest = self._mean = 0.0
        self.started = False
        self._took = self._predicted = 0.0

    def earn(self, units: float) -> None:
        """Add one request's contribution, without taking away what dearer requests have added."""
        self._requests += 1
        self._latest = units
        self._mean += (units - self._mean) / min(self._requests, BUDGET_REQUESTS)
        self._add(units)

    @property
    def _limit(self) -> float:
        """Return the most units held, or owed for a response that was dearer than predicted.

        The latest request's size must not decide: it is not the one that is settled.
        """
        return BUDGET_REQUESTS * self._mean

    def start(self, units: float) -> None:
        """Add the advance."""
        self.started = True
        self.units += units

    def pay(self, units: float) -> None:
        """Subtract what a trial by the latest request is predicted to cost beyond the first choice,
        delays included. A large request may owe what BUDGET_REQUESTS of its size add: forgiven by
        the mean, trials of large requests would cost several times the share."""
        owed = max(self._limit, BUDGET_REQUESTS * self._latest)
        self.units = max(self.units - units, min(self.units, -owed))

    def first_choice_took(self, seconds: float, predicted: float) -> None:
        """Record a response of a first choice, to correct predictions that are off for all alike.

        predicted: for a response of its length.
        """
        forget = 0.5 ** (1.0 / BUDGET_REQUESTS)
        self._took = forget * self._took + seconds
        self._predicted = forget * self._predicted + predicted

    def settle(
        self,
        paid: float,
        took: float,
        first: float,
        choices: int = 1,
        objective: Objective = "seconds",
    ) -> None:
        """Replace the price that was paid for a trial by the real one.

        took: seconds of one of its `choices` answers, without the wait that the first choice was
        predicted to have. first: seconds predicted for the first choice, for a response of this
        length.
        """
        right = self._took / self._predicted if self._predicted > 0.0 else 1.0
        cost = took - right * first
        self._add((paid - cost / unit_of(objective, right * first)) / choices)

    def _add(self, units: float) -> None:
        filled = min(max(self.units, self._limit), self.units + units)
        self.units = max(min(self.units, -self._limit), filled)


@dataclass
class Trials:
    """Draws which method to try, and keeps the budget.

    ingresses: how many there are. Each earns by its own requests, and what is given in advance is
    given once for all of them.
    """

    rng: np.random.Generator
    budget: ExplorationBudget = field(default_factory=ExplorationBudget)
    ingresses: int = 1

    def choose(
        self, options: Sequence[Option], objective: Objective, config: RouterConfig
    ) -> Choice:
        """Choose an option; the first is the one to take when nothing is to be learned.

        Another option counts as faster when it is by more than HYSTERESIS: telling near
        equals apart is worth nothing. `config.exploration` is the share of the first one's seconds
        that goes into the budget. An option that the budget cannot pay for, were it slower than
        predicted by a standard error, gives its probability to the first. A GUESS has no price: it
        pays the first choice's seconds until its response arrives. It is tried while the ingresses
        together have no debt: an ingress may owe its part of those seconds, and has the others, or
        what BUDGET_REQUESTS requests like this one add. A delay of other requests makes an option
        slower and is never paid back, because no response shows what it really was.
        """
        seconds, errors, delays = zip(*options, strict=True)
        floored = [max(float(taken), _LEAST_SECONDS) for taken in seconds]
        unit = unit_of(objective, floored[0])
        predicted = [taken / unit for taken in floored]
        first, own_delay = predicted[0], delays[0] / unit
        delayed = [max(0.0, delay / unit - own_delay) for delay in delays]
        earned = config.exploration * first
        self.budget.earn(earned)
        guess = [m > 0 and error > GUESS for m, error in enumerate(errors)]
        if any(guess) and not self.budget.started:
            self.budget.start(self._advance() * first)
        needed = min(first - first / self.ingresses, BUDGET_REQUESTS * earned)
        affordable = [
            (needed if a_guess else max(0.0, taken * exp(error) + delay - first))
            <= self.budget.units
            for taken, error, delay, a_guess in zip(predicted, errors, delayed, guess, strict=True)
        ]
        rest = [0.0] * (len(predicted) - 1)
        if any(affordable[1:]):
            later = [taken * (1.0 + favourites.HYSTERESIS) for taken in predicted[1:]]
            medians = [taken + d for taken, d in zip([first, *later], delayed, strict=True)]
            free = soonest(medians, errors).tolist()
            rest = [c if paid else 0.0 for c, paid in zip(free[1:], affordable[1:], strict=True)]
        chances = [1.0 - sum(rest), *rest]
        index = bisect_right(list(accumulate(chances[:-1])), self.rng.random())
        extra = max(first if guess[index] else 0.0, predicted[index] - first)
        self.budget.pay(extra + delayed[index])
        return Choice(index, chances[index], unit * extra)

    def _advance(self) -> float:
        """Return this ingress's part of START_REQUESTS, in whole requests."""
        requests, left = divmod(START_REQUESTS, self.ingresses)
        return requests + (left > 0.0 and self.rng.random() < left / self.ingresses)

    def settle(
        self, table: RoutingTable, decision: Decision, stats: DecodeStats, choices: int = 1
    ) -> None:
        """Correct the budget by a response, one of `choices`, to a routed request.

        Predictions are for a response of this length in its batch, from the table as it is now. A
        trial is charged for its wait for a place beyond the wait predicted for the first choice.
        """
        own, first = stats.method, decision.ranked[0]
        if decision.cluster < 0 or not {own, first} <= set(table.methods):
            return
        if decision.fit_id != table.fit_id:
            return
        m, band = table.methods.index(first), temperature_band(stats.temperature)
        accepted = evidence.expected(table, decision.cluster, band, decision.predicted_acceptance)
        predicted = predict.predicted_seconds(
            table,
            float(accepted[m]),
            m,
            stats.prompt_tokens,
            stats.output_tokens,
            max(1.0, stats.mean_batch),
        )
        if decision.reason == "exploration" and own == decision.method:
            unit = unit_of(table.objective, decision.predicted_seconds[first])
            took = stats.total_seconds - stats.stalled_seconds - decision.first_waiting_seconds
            paid = decision.exploration_seconds / unit
            self.budget.settle(paid, took, predicted, choices, table.objective)
        elif own == first:
            took = stats.total_seconds - stats.queue_seconds - stats.stalled_seconds
            self.budget.first_choice_took(took, predicted)


def soonest(seconds: Sequence[float] | Floats, errors: Sequence[float] | Floats) -> Floats:
    """Return the probability [m] that each method is the fastest; they sum to 1.

    seconds: medians [m] of independent log-normal distributions. errors: standard errors of their
    logarithms [m], above 0.
    """
    center, spread = np.log(np.asarray(seconds, dtype=np.float64)), np.asarray(errors)
    low = (center - _DEVIATIONS * spread).min()
    # The fastest is below the upper end of every method.
    high = (center + _DEVIATIONS * spread).min()
    edges = low + (high - low) * _SHARES
    done = ndtr((edges - center[:, None]) / spread[:, None])
    later = 1.0 - done
    # Probabilities that all methods before and behind each one are slower.
    before, behind = np.ones_like(later), np.ones_like(later)
    np.cumprod(later[:-1], axis=0, out=before[1:])
    np.cumprod(later[:0:-1], axis=0, out=behind[-2::-1])
    others = before * behind
    chances = ((done[:, 1:] - done[:, :-1]) * (others[:, 1:] + others[:, :-1])).sum(axis=1)
    return np.asarray(chances / chances.sum())


def unit_of(objective: Objective, seconds: float) -> float:
    """Return the budget's unit, in seconds, for a request whose first choice takes `seconds`.

    Under the objective `speedup` every response counts alike, so the unit is the response.
    """
    return max(seconds, 1e-9) if objective == "speedup" else 1.0
