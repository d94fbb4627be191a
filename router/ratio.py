"""By how much methods differ from what was measured of them offline, learned from answers."""

import math

import numpy as np

from router import belief
from router.belief import Floats
from router.fading import FadingSums

OWN_HALF_LIFE = 8.0
"""Answers of one method; one averages tens of steps or prompt tokens, so a few say enough."""


class Ratio(FadingSums):
    """How many times as long as measured each of m methods takes for one kind of work."""

    def __init__(self, methods: int, names: tuple[str, str], half_life: float) -> None:
        """`names`: of the sum of log ratios, and of that of the answers behind it."""
        super().__init__(methods, names, OWN_HALF_LIFE, half_life)

    def observe(self, method: int, factor: float, share: float) -> None:
        """An answer took `factor` (above 0) times as long; it counts for `share` of one."""
        self.add(method, (math.log(factor), 1.0), share)

    def values(self) -> Floats:
        """A factor of the machine, common to all methods, times one of each method, shrunk by what
        is known of it [m].

        Another machine, or a neighbour on this one, slows all methods down; of a method that was
        not tried yet the others' answers say so.
        """
        return np.asarray(np.exp(common_and_own(*self.columns)))


def common_and_own(log_ratios: Floats, weight: Floats) -> Floats:
    """Log of the machine's factor times a method's own [m], from sums of answers' log ratios and
    how many they are."""
    seen = log_ratios / np.maximum(weight, 1e-9)
    machine = belief.machine_log_ratio(seen, weight)
    prior = belief.STEP_SPREAD**2 / belief.own_variance(seen, weight)
    return np.asarray(machine + (log_ratios - machine * weight) / (weight + prior))
