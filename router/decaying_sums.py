"""Sums over answers in which old responses decay."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from router.evidence import Floats

HALF_LIFE = 50.0
"""Answers of a cluster after which earlier ones have half their weight."""

UNTRIED_HALF_LIVES = 4.0
"""Sums of a method also halve after this many half-lives of responses of any method, so that a
method without traffic drifts back to its profiled speed. It is above 1 because a method is seen in
every cluster. A slowness that has passed is found to have passed in this way. A method whose
profile is wrong comes back for one response in 600: less than the exploration budget spends."""


class DecayingSums:
    """Sums [m, c] of c named values over the responses of m methods, in which old responses decay.

    A response's weight halves after `own_half_life` more responses of the same method, and after
    UNTRIED_HALF_LIVES x HALF_LIFE more responses of any method.
    """

    def __init__(self, methods: int, names: Sequence[str], own_half_life: float) -> None:
        self._names = tuple(names)
        self._own = own_half_life
        self._any = UNTRIED_HALF_LIVES * HALF_LIFE
        self._sums = np.zeros((methods, len(self._names)))

    @property
    def columns(self) -> Floats:
        """The sums by name and method [c, m]; a copy."""
        return self._sums.T.copy()

    def add(self, method: int, values: Sequence[float], share: float = 1.0) -> None:
        """Count a response of one method (by index) as `share` of a response."""
        self._sums *= 0.5 ** (share / self._any)
        self._sums[method] *= 0.5 ** (share / self._own)
        self._sums[method] += share * np.asarray(values)

    def add_each(self, values: Floats, shares: Floats) -> None:
        """Count one response with values [m, c] as a share [m] of a response of each method."""
        self._sums *= 0.5 ** (shares.sum() / self._any) * 0.5 ** (shares / self._own)[:, None]
        self._sums += shares[:, None] * values

    def state(self) -> dict[str, list[float]]:
        """Return the sums of all methods by name, as JSON values."""
        return dict(zip(self._names, self.columns.tolist(), strict=True))

    def restore(self, state: Mapping[str, Any], kept: Mapping[int, int]) -> None:
        """Take the sums over from a state.

        kept: maps a method's index here to its index in the state.
        """
        for column, name in enumerate(self._names):
            for here, there in kept.items():
                self._sums[here, column] = state[name][there]
