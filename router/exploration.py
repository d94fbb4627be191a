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

AUDITED_WITHIN = 20
"""Requests within which each method answers once, and an exploration's response is expected."""

AUDIT = 1.0 / 200.0
"""Probability of an audit after these."""

FOLLOWING = 8.0
"""Requests that profit from what a response teaches."""


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
        self._budget = 0.0
        """In first choices' seconds, from -1 to 1."""
        self._explored: dict[int, tuple[float, float]] = {}
        """By method: its latest response, and that of all methods, when it was explored."""

    def choose(self, options: Sequence[Option], latest: Sequence[float], share: float) -> Choice:
        """Choose an option; the first one is the best without exploring.

        latest [m]: as in Live. share: of the first choice's seconds that goes into the budget.
        """
        first, served = max(options[0].seconds, 1e-9), max(latest)
        self._budget = min(1.0, self._budget + share)
        chances = np.zeros(len(options))
        audited, audit = self._audit(options, latest, served)
        best, explored = self._worth(options, latest, served)
        chances[best] += (1.0 - audit) * explored
        chances[audited] += audit
        chances[0] += 1.0 - chances.sum()
        option = int(self._rng.choice(len(options), p=chances))
        one, extra = options[option], max(0.0, options[option].seconds - first)
        if option:
            self._explored[one.method] = latest[one.method], served
            self._budget = max(-1.0, self._budget - extra / first)
        return Choice(option, float(chances[option]), extra)

    def _pending(self, method: int, latest: Sequence[float], served: float) -> bool:
        """Return whether the response to an exploration of a method is still to come."""
        before, at = self._explored.get(method, (-1.0, 0.0))
        return before == latest[method] and at <= served < at + AUDITED_WITHIN

    def _audit(
        self, options: Sequence[Option], latest: Sequence[float], served: float
    ) -> tuple[int, float]:
        """Return the option (by index) that an audit takes, and the probability of one."""
        free = [i for i, o in enumerate(options) if not self._pending(o.method, latest, served)]
        new = [i for i in free if i > 0 and latest[options[i].method] == 0.0]
        if new:
            left = AUDITED_WITHIN - served
            chance = len(new) / max(1.0, left if left > 0.0 else AUDITED_WITHIN)
            return min(new, key=lambda i: options[i].seconds), min(1.0, chance)
        if len(free) < 2:
            return 0, 0.0
        return min(free, key=lambda i: latest[options[i].method]), AUDIT

    def _worth(
        self, options: Sequence[Option], latest: Sequence[float], served: float
    ) -> tuple[int, float]:
        """Return the option (by index) that is most worth exploring, and its probability.

        That is the expected net saving in first choices, at most 1.
        """
        first, most, best = max(options[0].seconds, 1e-9), 0.0, 0
        for i, one in enumerate(options[1:], 1):
            extra = one.seconds - first
            if extra > max(0.0, self._budget) * first or self._pending(one.method, latest, served):
                continue
            learned = one.error**2 / (one.error**2 + NOISE**2)
            gain = FOLLOWING * learned * positive_part(-extra, one.error * one.seconds) - extra
            if gain > most:
                most, best = gain, i
        return best, min(1.0, most / first)
