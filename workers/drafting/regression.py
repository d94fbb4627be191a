"""Least squares that forget, with a prior."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MOST_SURPRISE = 3.0
"""Times what was expected; what takes longer was disturbed."""


class Regression:
    """Weights of a sum of features that explain what was measured (ridge regression, recursive).

    covariance: of the weights before anything was measured, around 0, in units of the variance of
    a measurement [k, k]. forget: share of what is known that every measurement lets go. What was
    long not measured goes back to the prior, or to what the prior says that others say of it.
    """

    def __init__(self, covariance: Floats, forget: float) -> None:
        self._prior = np.linalg.inv(covariance)
        self._keep = 1.0 - forget
        self._squares = np.zeros_like(self._prior)
        self._products = np.zeros(len(covariance))
        self._weights: Floats | None = np.zeros(len(covariance))

    @property
    def weights(self) -> Floats:
        """Of the features [k]."""
        if self._weights is None:
            known = self._prior + self._squares
            self._weights = np.asarray(np.linalg.solve(known, self._products), float)
        return self._weights

    def saw(self, features: Floats, value: float) -> None:
        """These [k] had this value."""
        self._squares = self._keep * self._squares + np.outer(features, features)
        self._products = self._keep * self._products + features * value
        self._weights = None

    def fade(self, share: float) -> None:
        """That much of what is known is forgotten."""
        self._squares = (1.0 - share) * self._squares
        self._products = (1.0 - share) * self._products
        self._weights = None
