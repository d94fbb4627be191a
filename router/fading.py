"""Sums over the answers of each method, in which the latest count for the most."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from router.belief import Floats

UNTRIED_HALF_LIVES = 4.0
"""A method is seen in every cluster, so what is known of it outlives a cluster's half life by so
much."""


class FadingSums:
    """Sums [m, c] of the c values, called `names`, that answers of m methods show.

    An answer weighs half after `own` more of the same method, and half after UNTRIED_HALF_LIVES x
    `half_life` more of any: a method that nobody is sent to any more is forgotten too.
    """

    def __init__(self, methods: int, names: Sequence[str], own: float, half_life: float) -> None:
        self._names = tuple(names)
        self._own = own
        self._any = UNTRIED_HALF_LIVES * half_life
        self._sums = np.zeros((methods, len(self._names)))

    @property
    def columns(self) -> Floats:
        """The sums by name and method [c, m]; a copy."""
        return self._sums.T.copy()

    def add(self, method: int, values: Sequence[float], share: float = 1.0) -> None:
        """Count an answer of the method's index; `share`: the part of one that it counts for."""
        self._sums *= 0.5 ** (share / self._any)
        self._sums[method] *= 0.5 ** (share / self._own)
        self._sums[method] += share * np.asarray(values)

    def add_each(self, values: Floats, shares: Floats) -> None:
        """Count one answer of which every method has a share [m], with values [m, c]."""
        self._sums *= 0.5 ** (shares.sum() / self._any) * 0.5 ** (shares / self._own)[:, None]
        self._sums += shares[:, None] * values

    def state(self) -> dict[str, list[float]]:
        """By name the sums of all methods, as JSON values."""
        return dict(zip(self._names, self.columns.tolist(), strict=True))

    def restore(self, state: Mapping[str, Any], kept: Mapping[int, int]) -> None:
        """Take over from `state`: each method's index here and there in `kept`. A state that was
        saved before there were such sums has none of them."""
        if self._names[0] not in state:
            return
        for column, name in enumerate(self._names):
            for here, there in kept.items():
                self._sums[here, column] = state[name][there]
