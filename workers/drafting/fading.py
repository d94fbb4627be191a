"""Estimates in which old observations decay."""

EXCHANGED = 0.75
"""Share of what was learned about a drafter that an exchange of its head removes."""
WEIGHT, MEMORY = 8.0, 300.0
"""Observations that a prior counts for, and that are remembered, unless an estimate says so."""


class FadingRatio:
    """Estimate observed over expected, starting from a prior.

    prior: the ratio before anything is seen. weight: how much expectation the prior counts for.
    memory: the sum of expectations above which older observations decay.
    """

    __slots__ = ("_expected", "_memory", "_observed", "_prior", "_weight")

    def __init__(
        self, prior: float = 1.0, *, weight: float = WEIGHT, memory: float = MEMORY
    ) -> None:
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
