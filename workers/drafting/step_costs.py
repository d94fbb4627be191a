"""Seconds of a step by the rows that it verifies, measured on this machine."""

from bisect import insort
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workers.drafting.estimates import FadingRatio

Floats = NDArray[np.float64]

CATCH_UP = 16
"""Missing tokens of a sequence from which on they are read in a forward of their own, so that one
long prompt does not pad the whole batch; fewer are read with the first draft token."""
RECENT = 32.0
"""Steps that tell the machine's present speed."""
MOST_SURPRISE = 3.0
"""Measurements count up to so many times what was expected; longer ones were disturbed."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A step in which all sequences decoded, and in which no grammar forced a token.

    sequences: of all methods, which emitted so many `tokens` and had so many `rows` verified.
    seconds: of the whole step. drafting: of it, by the drafters.
    """

    sequences: int
    tokens: int
    rows: int
    seconds: float
    drafting: float


class StepCosts:
    """Hold the seconds of one sequence's forwards by rows, raw as they were measured before
    serving, and the machine's present speed for batches of each size.

    wanted: whether a drafter decides by costs; then forwards are measured before serving.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._measured: list[tuple[int, float]] = []
        self._table = np.zeros(0)
        self._speeds: dict[int, FadingRatio] = {}

    def measured(self, rows: int, seconds: float) -> None:
        """Add a forward of one sequence's rows that was timed before serving."""
        insort(self._measured, (rows, seconds))
        self._table = np.zeros(0)

    def table(self, rows: int) -> Floats:
        """Return the measured seconds of forwards with 0, 1, ... at least `rows` rows, linear
        between and beyond measurements; 1 for all if nothing was measured."""
        if not self._measured:
            return np.ones(rows + 1)
        if len(self._table) <= rows:
            sizes, seconds = map(np.array, zip(*self._measured, strict=True))
            places = np.arange(2 * rows + 2)
            slope = max(0.0, seconds[-1] - seconds[0]) / max(1, sizes[-1] - sizes[0])
            beyond = slope * np.maximum(0, places - sizes[-1])
            self._table = np.interp(places, sizes, seconds) + beyond
        return self._table

    def speed(self, bucket: int) -> FadingRatio:
        """Return the factor on the table in batches of a size, which begins with the nearest."""
        if bucket not in self._speeds:
            near = min(self._speeds, key=lambda one: abs(one - bucket), default=None)
            prior = 1.0 if near is None else self._speeds[near].value
            self._speeds[bucket] = FadingRatio(prior, weight=1.0, memory=RECENT)
        return self._speeds[bucket]

    def saw(self, bucket: int, step: Finished) -> float:
        """Learn from a step; return its seconds without a disturbance of its verification."""
        usual, speed = float(self.table(step.rows)[step.rows]), self.speed(bucket)
        verifying = min(step.seconds - step.drafting, MOST_SURPRISE * speed.value * usual)
        speed.saw(verifying / usual)
        return step.drafting + verifying
