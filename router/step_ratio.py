"""By how much methods' steps differ from what was measured offline, alone and in batches."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from router import belief
from router.fading import FadingSums
from router.ratio import OWN_HALF_LIFE, common_and_own

CROWD = 8.0
"""Sequences from which on a batch counts as full. How steps grow with the batch is the machine's: a
head that wins alone may lose eight at a time, and on another machine neither."""
LOG_CROWD = math.log(CROWD)
ENDS = 2
"""What is known of a method's pace: alone, and in a full batch; between them it goes with the
logarithm of the batch."""
OLDER = ("log_ratio", "ratio_weight")
"""In states from before the two were told apart."""


def crowd(batch: float) -> float:
    """How far a batch of so many sequences is from one (0) to a full one (1)."""
    return min(1.0, math.log(batch) / LOG_CROWD) if batch > 1.0 else 0.0


class StepRatio(FadingSums):
    """How many times as long as measured each of m methods' steps take, by the batch.

    Alone a method's factor is the machine's times its own (`common_and_own`), of answers that were
    alone; those of full batches say something of it, but no more than STEP_PRIOR answers do. What
    full batches take beyond that is again the machine's times the method's own: a method that was
    not tried in one is expected to do there as the others' say.

    before: logarithms [m] of what full batches take beyond that before anything is learned, as a
    table has them that was learned elsewhere and promoted.
    """

    def __init__(self, methods: int, half_life: float, before: belief.Floats | None = None) -> None:
        names = ("log_step_ratio", "step_ratio_weight")
        super().__init__(methods * ENDS, names, OWN_HALF_LIFE, half_life)
        self._before = np.zeros(methods) if before is None else before

    @property
    def weight(self) -> belief.Floats:
        """Answers behind each method's ratio alone [m]."""
        return self._alone()[1]

    def observe(
        self,
        now: belief.Floats,
        parts: Mapping[int, tuple[float, float]],
        beyond: float,
        batch: float,
    ) -> None:
        """An answer's steps, of so many sequences, took exp(`beyond`) times as long as expected.

        now: log ratios [m, 2] by which it was expected; parts: by method (index) the share of an
        answer that it counts for, and its part in the seconds. Both ends of all methods are put
        where the least change of all puts them that explains it (normalised least mean squares):
        an answer that is as expected changes nothing, whatever its batch.
        """
        high = crowd(batch)
        ends = np.asarray([1.0 - high, high])
        slopes, shares = np.zeros((2, len(self._sums) // ENDS, ENDS))
        for method, (share, part) in parts.items():
            slopes[method], shares[method] = part * ends, share * ends
        values = now + beyond * slopes / (slopes**2).sum()
        counted = np.stack([values.ravel(), np.ones(values.size)], axis=1)
        self.add_each(counted, shares.ravel())

    def values(self) -> tuple[belief.Floats, belief.Floats]:
        """Each method's factor alone [m], and the further one in a full batch [m]."""
        alone = common_and_own(*self._alone())
        full, weight = self._by_end()[:, :, 1]
        beyond = common_and_own(full - (alone + self._before) * weight, weight)
        return np.exp(alone), np.exp(self._before + beyond)

    def restore(self, state: Mapping[str, Any], kept: Mapping[int, int]) -> None:
        """As FadingSums, each method with both of its ends; of an older state as if all answers had
        been alone."""
        if OLDER[0] in state:
            for here, there in kept.items():
                self._sums[ENDS * here] = [state[name][there] for name in OLDER]
        ends = range(ENDS)
        rows = {ENDS * h + end: ENDS * t + end for h, t in kept.items() for end in ends}
        super().restore(state, rows)

    def _alone(self) -> tuple[belief.Floats, belief.Floats]:
        """Sums of log ratios alone and of answers [m], full batches' among them for a little."""
        (alone, full), (weight, many) = np.moveaxis(self._by_end(), 2, 1)
        lent = belief.STEP_PRIOR / (many + belief.STEP_PRIOR)
        usual = full - self._before * many
        return np.asarray(alone + lent * usual), np.asarray(weight + lent * many)

    def _by_end(self) -> belief.Floats:
        """Sums of log ratios and of answers [2, m, ends]."""
        return self.columns.reshape(2, -1, ENDS)
