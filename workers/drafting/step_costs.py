"""Seconds of a step and of its drafts, learned on this machine."""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from workers.drafting.fading import MOST_SURPRISE, Floats, Regression

CATCH_UP = 16
"""Missing tokens of a sequence from which on they are read in a forward of their own, so that one
long prompt does not pad the whole batch; fewer are read with the first draft token."""
PRIOR = (0.02, 0.05, 0.02, 0.02, 0.03, 0.05)
"""Cost of each of `Draft.terms` before anything is measured, in forwards of one row: low, so that
every drafter is tried."""
DEVIATION = (2.0, 2.0, 2.0, 2.0, 8.0, 8.0)
"""Standard deviation of each, in that of a measurement. Catching up is known least: a drafter's
first drafts follow a prompt's reading, whose seconds are not its levels'."""
DRAFT_FORGET, IDLE_DRAFT_FORGET = 0.01, 1.0 / 200
"""Share of the measurements that each draft, and each step without one, removes: a drafter that was
slow long ago is tried again."""
CATCH_UP_SHARE = 1.0 / 8
"""Share of the cost of catching up that one draft is charged: later drafts need it too."""
MORE_SEQUENCES, READ = 4.0, 100.0
"""Units of the terms: sequences, tokens."""


@dataclass(frozen=True, slots=True)
class Draft:
    """The work of one draft: levels for a number of sequences, of which `late` first catch up on
    `missing` tokens in a forward of their own."""

    levels: float
    sequences: float
    late: float = 0.0
    missing: float = 0.0

    @classmethod
    def of(cls, levels: float, missing: Sequence[int]) -> "Draft":
        """Return the draft for sequences that miss so many tokens each."""
        late = [tokens for tokens in missing if tokens >= CATCH_UP]
        return cls(levels, len(missing), len(late), sum(late))

    def part(self, sequences: int) -> "Draft":
        """Return the mean draft for some of the sequences."""
        share = sequences / self.sequences
        return Draft(self.levels, sequences, share * self.late, share * self.missing)

    def terms(self) -> Floats:
        """Return the features of `DraftSeconds` [6]."""
        more = (self.sequences - 1.0) / MORE_SEQUENCES
        return np.array(
            [1.0, self.levels, more, self.levels * more, self.late, self.missing / READ]
        )


class DraftSeconds:
    """Predict a draft's seconds, linear in levels, sequences, their product and what is read first.

    forward: seconds of a target forward of one row; 0 where it is unknown.
    """

    def __init__(self, forward: float) -> None:
        self._before = forward * np.asarray(PRIOR)
        self._change = Regression(np.diag(np.square(DEVIATION)), DRAFT_FORGET)

    def saw(self, draft: Draft, seconds: float) -> None:
        """Learn that a draft took so long."""
        terms = draft.terms()
        expected = float(terms @ self._before)
        if expected:
            seconds = min(seconds, MOST_SURPRISE * max(expected, self.of(draft)))
        self._change.saw(terms, seconds - expected)

    def of(self, draft: Draft) -> float:
        """Return the expected seconds; 0 where nothing is known."""
        return max(0.0, float(draft.terms() @ (self._before + self._change.weights)))

    def charged(self, draft: Draft) -> float:
        """Return the expected seconds with one draft's share of catching up."""
        late, missing = CATCH_UP_SHARE * draft.late, CATCH_UP_SHARE * draft.missing
        return self.of(replace(draft, late=late, missing=missing))

    def idle(self) -> None:
        """Count a step without a draft."""
        self._change.fade(IDLE_DRAFT_FORGET)


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
