"""Seconds of a step, learned on this machine by rows, sequences and context."""

from bisect import insort
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from workers.drafting.draft_seconds import Draft, DraftSeconds
from workers.drafting.regression import MOST_SURPRISE, Floats, Regression

MANY = 64.0
"""Unit of rows: the machine speed is a quadratic function of log(rows) / log(MANY)."""
NOISE = 0.15
"""Relative standard deviation of a measured step."""
SPEED, MORE_ROWS = 1.0, 0.3
"""Standard deviations of the machine speed at one row, and of its two terms in rows."""
SEQUENCE, TOKEN = 0.05, 0.05 / 200
"""Standard deviations of what one more sequence and one token of context cost, in forwards of one
row. A sequence costs more where rows are uneven: attention needs padding, or calls of its own."""
FORGET = 1.0 / 400
"""Share of the measurements that each step removes."""
FASTEST = 0.1
"""Share of the first measurement that a step takes at least."""
DOUBLED = 32.0
"""Rows that are taken to double a step's seconds where only one size was measured."""


class StepSeconds:
    """Predict the seconds of a step without its drafting.

    They are the seconds of one sequence's forward by rows, measured before serving, times the
    machine's present speed, plus a cost of every further sequence and every token of context.
    Sizes that were not seen lately follow the others.
    """

    def __init__(self) -> None:
        self._first: list[tuple[int, float]] = []
        self._table = np.zeros(0)
        deviations = np.array([SPEED, MORE_ROWS, MORE_ROWS, SEQUENCE, SEQUENCE, TOKEN])
        self._slower = Regression(np.diag(deviations**2) / NOISE**2, FORGET)

    @property
    def known(self) -> bool:
        """Whether anything was measured."""
        return bool(self._first)

    @property
    def forward(self) -> float:
        """Seconds of a forward of one row as first measured; 0 where nothing was."""
        return float(self._alone(np.ones(1))[0]) if self._first else 0.0

    def measured(self, rows: int, seconds: float) -> None:
        """Add a forward of one sequence's rows that was timed before serving."""
        insort(self._first, (rows, seconds))
        self._table = np.zeros(0)

    def saw(self, widths: Sequence[int], context: int, seconds: float) -> None:
        """Learn from a step. widths: rows of each sequence. context: tokens of all together."""
        rows, sequences = np.array([float(sum(widths))]), len(widths)
        if not self._first:
            self.measured(0, seconds / (1.0 + rows[0] / DOUBLED))
        uneven = np.array([min(widths) < max(widths)])
        alone = self._alone(rows)
        features = self._features(rows, sequences, context, uneven)
        expected = float((alone + features @ self._slower.weights)[0])
        taken = min(seconds, MOST_SURPRISE * expected)
        self._slower.saw(features[0] / alone[0], (taken - alone[0]) / alone[0])

    def of(self, rows: Floats, sequences: int, context: int) -> Floats:
        """Return the expected seconds of steps with so many rows [r], rising; 1 for all where
        nothing was measured. More rows than sequences are taken to be uneven."""
        if not self._first:
            return np.ones_like(rows)
        features = self._features(rows, sequences, context, rows > sequences)
        alone = self._alone(rows)
        seconds = alone + features @ self._slower.weights
        return np.asarray(np.maximum.accumulate(np.maximum(seconds, FASTEST * alone)))

    def _features(
        self, rows: Floats, sequences: int, context: int, uneven: NDArray[np.bool_]
    ) -> Floats:
        """Return what each weight multiplies, in seconds [r, 6]."""
        one, alone = float(self._alone(np.ones(1))[0]), self._alone(rows)
        many = np.log(np.maximum(1.0, rows)) / np.log(MANY)
        sequence = np.full(len(rows), one * (sequences - 1.0))
        token = np.full(len(rows), one * context)
        speed = [alone, alone * many, alone * many**2]
        return np.stack([*speed, sequence, sequence * uneven, token], axis=1)

    def _alone(self, rows: Floats) -> Floats:
        """Return one sequence's seconds by rows, extrapolated with their mean slope."""
        if len(self._table) <= rows.max():
            self._table = self._interpolated(np.arange(2.0 * (rows.max() + 1.0)))
        return np.asarray(self._table[rows.astype(int)])

    def _interpolated(self, rows: Floats) -> Floats:
        sizes = [size for size, _ in self._first]
        if len(sizes) == 1:
            return np.asarray(self._first[0][1] * (1.0 + rows / DOUBLED))
        # a disturbed measurement is above the others, never below
        seconds = np.minimum.accumulate([took for _, took in reversed(self._first)])[::-1]
        slope = (seconds[-1] - seconds[0]) / (sizes[-1] - sizes[0])
        beyond = slope * np.maximum(0.0, rows - sizes[-1])
        return np.asarray(np.interp(rows, sizes, seconds) + beyond)


class StepCosts:
    """Hold what steps and drafts cost in one engine."""

    def __init__(self) -> None:
        self.wanted = False
        """Whether a drafter decides by costs: then forwards are measured before serving."""
        self.step = StepSeconds()
        self._drafts: dict[str, DraftSeconds] = {}

    def drafting(self, drafter: str, draft: Draft) -> float:
        """Return the expected seconds of a draft, as charged to one step."""
        return self._of(drafter).charged(draft)

    def saw_drafting(self, drafter: str, draft: Draft, seconds: float) -> None:
        """Learn that a draft took so long."""
        self._of(drafter).saw(draft, seconds)

    def idle(self, drafter: str) -> None:
        """Count a step in which a drafter did not draft."""
        self._of(drafter).idle()

    def _of(self, drafter: str) -> DraftSeconds:
        if drafter not in self._drafts:
            self._drafts[drafter] = DraftSeconds(self.step.forward)
        return self._drafts[drafter]
