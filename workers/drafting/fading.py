"""Estimates in which old observations decay."""

import numpy as np
from numpy.typing import NDArray

EXCHANGED = 0.75
"""Share of what was learned about a drafter that an exchange of its head removes."""


class FadingRatio:
    """Estimate observed over expected, starting from a prior.

    prior: the ratio before anything is seen. weight: how much expectation the prior counts for.
    memory: the sum of expectations above which older observations decay.
    """

    __slots__ = ("_expected", "_memory", "_observed", "_prior", "_weight")

    def __init__(self, prior: float = 1.0, *, weight: float, memory: float) -> None:
        self._prior, self._weight, self._memory = prior, weight, memory
        self._observed = self._expected = 0.0

    @property
    def value(self) -> float:
        """The present estimate."""
        return self.given(self._prior)

    def given(self, prior: float) -> float:
        """Return the estimate that another prior would give."""
        return (prior * self._weight + self._observed) / (self._weight + self._expected)

    def saw(self, observed: float, expected: float = 1.0) -> None:
        """Add an observation."""
        if self._expected + expected > self._memory:
            self.fade(min(1.0, expected / self._memory))
        self._observed += observed
        self._expected += expected

    def fade(self, share: float) -> None:
        """Forget a share of the observations."""
        self._observed *= 1.0 - share
        self._expected *= 1.0 - share


Floats = NDArray[np.float64]

MOST_SURPRISE = 3.0
"""Measurements count up to so many times what was expected; longer ones were disturbed."""


class Regression:
    """Fit the weights of a sum of features to measurements (recursive ridge regression).

    covariance: of the weights before anything was measured, around 0, in units of the variance of
    a measurement [k, k]. forget: share of all knowledge that each measurement removes.
    """

    def __init__(self, covariance: Floats, forget: float) -> None:
        self._prior = np.linalg.inv(covariance)
        self._forget = forget
        self._squares = np.zeros_like(self._prior)
        self._products = np.zeros(len(covariance))
        self._weights: Floats | None = np.zeros(len(covariance))

    @property
    def weights(self) -> Floats:
        """The weights of the features [k]."""
        if self._weights is None:
            known = self._prior + self._squares
            self._weights = np.asarray(np.linalg.solve(known, self._products), float)
        return self._weights

    def saw(self, features: Floats, value: float) -> None:
        """Learn that these features [k] had this value."""
        self.fade(self._forget)
        self._squares += np.outer(features, features)
        self._products += features * value

    def fade(self, share: float) -> None:
        """Forget a share of the measurements."""
        self._squares *= 1.0 - share
        self._products *= 1.0 - share
        self._weights = None
