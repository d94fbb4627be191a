"""Estimates in which old observations decay."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

WEIGHT, MEMORY = 8.0, 300.0
"""Observations that a prior counts for, and that are remembered, unless an estimate says so."""
HALF = 0.5
"""Share of what was learned that stays after a restart, and after an exchange of the head."""

Name = tuple[str | int | bool, ...]


class FadingRatio:
    """Estimate observed over expected, starting from a prior.

    prior: the ratio before anything is seen. weight: how much expectation the prior counts for.
    memory: the sum of expectations above which older observations decay.
    """

    __slots__ = ("_memory", "_prior", "_weight", "expected", "observed")

    def __init__(
        self, prior: float = 1.0, *, weight: float = WEIGHT, memory: float = MEMORY
    ) -> None:
        self._prior, self._weight, self._memory = prior, weight, memory
        self.observed = self.expected = 0.0

    @property
    def value(self) -> float:
        """The present estimate."""
        return self.given(self._prior, self._weight)

    def given(self, prior: float, weight: float = WEIGHT) -> float:
        """Return the estimate that another prior would give."""
        return (prior * weight + self.observed) / (weight + self.expected)

    def saw(self, observed: float, expected: float = 1.0) -> None:
        """Add an observation."""
        if self.expected + expected > self._memory:
            self.keep(max(0.0, 1.0 - expected / self._memory))
        self.observed += observed
        self.expected += expected

    def keep(self, share: float) -> None:
        """Forget all but a share of the observations."""
        self.observed *= share
        self.expected *= share


class Estimates:
    """The estimates of an adaptive method by name, so that they can be stored."""

    def __init__(self) -> None:
        self._ratios: dict[Name, FadingRatio] = {}
        self._loaded: dict[Name, tuple[float, float]] = {}

    def of(
        self,
        *name: str | int | bool,
        prior: float = 1.0,
        weight: float = WEIGHT,
        memory: float = MEMORY,
    ) -> FadingRatio:
        """Return an estimate. The first call with a name begins it."""
        if name not in self._ratios:
            ratio = self._ratios[name] = FadingRatio(prior, weight=weight, memory=memory)
            ratio.observed, ratio.expected = self._loaded.pop(name, (0.0, 0.0))
        return self._ratios[name]

    def exchanged(self, part: str) -> None:
        """Forget half of the estimates whose name has this part."""
        for name, ratio in self._ratios.items():
            if part in name:
                ratio.keep(HALF)

    def dump(self) -> list[list[Any]]:
        """Return name, observed and expected of every estimate with observations."""
        seen = {name: (one.observed, one.expected) for name, one in self._ratios.items()}
        return [[*name, *both] for name, both in (self._loaded | seen).items() if both[1]]

    def load(self, rows: Iterable[Sequence[Any]]) -> None:
        """Begin with half of the observations that `dump` returned. Raises ValueError, TypeError or
        IndexError for anything else, and then loads nothing."""
        loaded: dict[Name, tuple[float, float]] = {}
        for row in rows:
            observed, expected = float(row[-2]), float(row[-1])
            if not (0.0 <= observed < math.inf and 0.0 <= expected < math.inf):
                raise ValueError(f"{row[-2:]} are not sums of observations")
            loaded[tuple(row[:-2])] = HALF * observed, HALF * expected
        self._loaded = loaded
        for name in self._ratios.keys() & loaded.keys():
            self._ratios[name].observed, self._ratios[name].expected = loaded.pop(name)
