"""Seconds that a drafter takes, learned from its drafts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from workers.drafting.regression import MOST_SURPRISE, Floats, Regression

CATCH_UP = 16
"""Missing tokens of a sequence from which on they are read in a forward of their own, so that one
long prompt does not pad the whole batch; fewer are read with the first draft token."""
PRIOR = (0.02, 0.05, 0.02, 0.02, 0.03, 0.05)
"""Cost of each of `Draft.terms` before anything is measured, in forwards of one row: low, so that
every drafter is tried."""
DEVIATION = (2.0, 2.0, 2.0, 2.0, 8.0, 8.0)
"""Standard deviation of each, in that of a measurement. Catching up is known least: a drafter's
first drafts follow a prompt's reading, whose seconds are not its levels'."""
FORGET, IDLE_FORGET = 0.01, 1.0 / 200
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
        self._change = Regression(np.diag(np.square(DEVIATION)), FORGET)

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
        self._change.fade(IDLE_FORGET)
