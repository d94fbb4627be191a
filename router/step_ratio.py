"""By how much methods' steps differ from what was measured offline, alone and in batches."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from router import belief
from router.fading import FadingSums
from router.ratio import OWN_HALF_LIFE, common_and_own

CROWD = 8.0
"""Sequences from which on a batch counts as full. How steps grow with the batch is the machine's: a
head that wins alone may lose eight at a time, and on another machine neither."""
ENDS = 2
"""What is known of a method's pace: alone, and in a full batch; between them it goes with the
logarithm of the batch."""
SWEEPS = 8
"""Of the fit, which by then has long settled."""


def crowd(batch: float) -> float:
    """How far a batch of so many sequences is from one (0) to a full one (1)."""
    return min(1.0, math.log(batch) / math.log(CROWD)) if batch > 1.0 else 0.0


class StepRatio(FadingSums):
    """How many times as long as measured each of m methods' steps take, by the batch.

    The logarithm of an answer's ratio is the machine's, its method's, the batch's and the method's
    own in such a batch, added up; each is shrunk by what is known of it, the last two as the
    method's is. So a method that was not tried in a full batch is expected to do there as it does
    alone, and as the others' steps say of full batches.
    """

    def __init__(self, methods: int, half_life: float) -> None:
        names = ("log_step_ratio", "step_ratio_weight")
        super().__init__(methods * ENDS, names, OWN_HALF_LIFE, half_life)

    @property
    def weight(self) -> belief.Floats:
        """Answers behind each method's ratio [m]."""
        return np.asarray(self._by_end()[1].sum(axis=1))

    def observe(
        self, shares: Sequence[tuple[int, float]], factors: Sequence[float], batch: float
    ) -> None:
        """An answer's steps, of so many sequences, took each of these methods (index, and the share
        of an answer that it counts for) so many times as long as measured."""
        values, parts = np.zeros((2, len(self._sums)))
        high = crowd(batch)
        for (method, share), factor in zip(shares, factors, strict=True):
            for end, part in enumerate((1.0 - high, high)):
                values[ENDS * method + end] = math.log(factor)
                parts[ENDS * method + end] = share * part
        self.add_each(np.stack([values, np.ones_like(values)], axis=1), parts)

    def values(self) -> tuple[belief.Floats, belief.Floats]:
        """Each method's factor alone [m], and the further one in a full batch [m]."""
        log_ratios, weight = self._by_end()
        trust = weight / (weight + belief.STEP_PRIOR)
        by_end = np.zeros_like(weight)
        for _ in range(SWEEPS):
            rest = (log_ratios - by_end * weight).sum(axis=1)
            by_method = common_and_own(rest, weight.sum(axis=1))
            left = log_ratios / np.maximum(weight, 1e-9) - by_method[:, None]
            common = (trust * left).sum(axis=0) / (trust.sum(axis=0) + 1.0)
            by_end = common + trust * (left - common)
        alone, full = by_end.T
        return np.exp(by_method + alone), np.exp(full - alone)

    def restore(self, state: Mapping[str, Any], kept: Mapping[int, int]) -> None:
        """As FadingSums, each method with both of its ends."""
        ends = range(ENDS)
        rows = {ENDS * h + end: ENDS * t + end for h, t in kept.items() for end in ends}
        super().restore(state, rows)

    def _by_end(self) -> belief.Floats:
        """Sums of log ratios and of answers [2, m, ends]."""
        return self.columns.reshape(2, -1, ENDS)
