"""Exploring: which requests go to a method in order to learn about it.

A method is explored if what its response may teach is worth more than what the request pays: the
expected saving of the following requests (its expected improvement over the first choice, under
the posterior) against the predicted extra seconds. The seconds come from a budget. And every
method is audited, so that no wrong belief lasts: once in the first requests of a table, later by
chance.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from router.acceptance import NOISE, positive_part

AUDITED_WITHIN = 40
"""Requests of a table within which each method answers once."""

AUDIT = 1.0 / 200.0
"""Probability of an audit after these."""

FOLLOWING = 8.0
"""Requests that profit from what a response teaches."""

CHANCE = 0.3
"""Probability that a method worth exploring is explored, so that a young service does not explore
in bursts."""

BUDGET_REQUESTS = 100.0
"""The budget holds, or owes, at most what this many requests add."""


class Option(NamedTuple):
    """A method that may answer.

    method: its index in the table. seconds: predicted under load. error: standard deviation of
    their logarithm that another response would reduce.
    """

    method: int
    seconds: float
    error: float


class Choice(NamedTuple):
    """The chosen option (by index), its exact probability, and its predicted extra seconds."""

    option: int
    propensity: float
    seconds: float


class Explorer:
    """Draw which requests explore, within an ingress's budget."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._units = 0.0
        self._explored: dict[int, tuple[float, float]] = {}
        """By method: its latest response, and that of all methods, when it was explored."""

    def choose(self, options: Sequence[Option], latest: Sequence[float], share: float) -> Choice:
        """Choose an option; the first one is the best without exploring.

        latest [m]: as in Live. share: of the first choice's seconds that goes into the budget.
        """
        first, served = options[0].seconds, max(latest)
        self._units = min(self._units + share, BUDGET_REQUESTS * share)
        chance, audited = self._audit(options, latest, served)
        best, explored = self._worth(options, latest, served), 0.0
        if best:
            explored = CHANCE
        drawn = self._rng.random()
        index = audited if drawn < chance else 0
        if drawn >= chance and drawn < chance + (1.0 - chance) * explored:
            index = best
        odds = {0: (1.0 - chance) * (1.0 - explored)}
        odds[best] = odds.get(best, 0.0) + (1.0 - chance) * explored
        odds[audited] = odds.get(audited, 0.0) + chance
        extra = max(0.0, options[index].seconds - first)
        if index:
            self._explored[options[index].method] = latest[options[index].method], served
            self._units = max(self._units - extra / max(first, 1e-9), -BUDGET_REQUESTS * share)
        return Choice(index, odds[index], extra)

    def _pending(self, method: int, latest: Sequence[float], served: float) -> bool:
        """Return whether the response to an exploration of a method is still to come."""
        before, at = self._explored.get(method, (-1.0, 0.0))
        return before == latest[method] and at <= served < at + AUDITED_WITHIN

    def _audit(
        self, options: Sequence[Option], latest: Sequence[float], served: float
    ) -> tuple[float, int]:
        """Return the probability of an audit, and the option (by index) that it takes."""
        free = [i for i, o in enumerate(options) if not self._pending(o.method, latest, served)]
        new = [i for i in free if i > 0 and latest[options[i].method] == 0.0]
        if new:
            left = max(1.0 / AUDIT / 10.0, AUDITED_WITHIN - served)
            if served < AUDITED_WITHIN:
                left = max(1.0, AUDITED_WITHIN - served)
            return min(1.0, len(new) / left), min(new, key=lambda i: options[i].seconds)
        if len(free) < 2:
            return 0.0, 0
        return AUDIT, min(free, key=lambda i: latest[options[i].method])

    def _worth(self, options: Sequence[Option], latest: Sequence[float], served: float) -> int:
        """Return the option (by index) that is most worth exploring; 0: none."""
        first, most, best = options[0].seconds, 0.0, 0
        for i, one in enumerate(options[1:], 1):
            extra = one.seconds - first
            units = extra / max(first, 1e-9)
            if units > max(0.0, self._units) or self._pending(one.method, latest, served):
                continue
            learned = one.error**2 / (one.error**2 + NOISE**2)
            gain = FOLLOWING * learned * positive_part(-extra, one.error * one.seconds) - extra
            if gain > most:
                most, best = gain, i
        return best
