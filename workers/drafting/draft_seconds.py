"""What drafting costs here, as it is measured."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from workers.drafting.regression import MOST_SURPRISE, Floats, Regression

DRAFTING = (0.02, 0.05, 0.02, 0.02, 0.03, 0.05)
"""What drafting is taken to cost before it was seen, in forwards of one row: at all, for a level,
for ONE_MORE sequences more, for a level of these, for a sequence that is read up on, for READ
tokens of that. Little, so that every drafter is tried."""
DRAFT_SURE = (2.0, 2.0, 2.0, 2.0, 8.0, 8.0)
"""Standard deviation of each of these, in that of a measurement. What is read up on is the least
known: a drafter's first drafts follow a prompt's reading, whose seconds are not its levels'."""
REHEARSED_SURE = (0.5,) * len(DRAFTING)
"""The same once drafts were rehearsed."""
DRAFT_FORGET = 0.01
"""Drafts after which what was seen weighs less."""
IDLE_FORGET = 1.0 / 200
"""The same of steps in which it did not draft: what is long ago may be so no more."""
TRIED_AGAIN = 1000
"""Steps without a draft after which half of its seconds are charged: a drafter that was slow when
it was rehearsed, on a machine that was busy with other work, is tried again."""
SOON, READ_UP = 8.0, 4.0
"""Drafts for which what is read up on is of use, before any was seen; in sequences that were read
up on, what that weighs."""
READ_UP_FORGET = 1.0 / 50
"""Sequences that were read up on after which earlier ones weigh less in that."""
ONE_MORE, READ = 4.0, 100.0


class DraftSeconds:
    """Seconds of drafting, linear in the levels, the sequences, both together, and what has to be
    read up on before: what was seen of one draft says something of every other.

    forward: seconds of a forward of one row, 0 where nobody knows.
    """

    def __init__(self, forward: float) -> None:
        self._before = forward * np.asarray(DRAFTING)
        self._more = Regression(np.diag(np.square(DRAFT_SURE)), DRAFT_FORGET)
        self._drafts, self._late = SOON * READ_UP, READ_UP
        self._idle = 0

    def saw(self, draft: "Draft", seconds: float) -> None:
        """It took so long."""
        self._idle = 0
        keep = (1.0 - READ_UP_FORGET) ** draft.late
        self._drafts = keep * self._drafts + draft.sequences
        self._late = keep * self._late + draft.late
        terms = draft.terms()
        expected = float(terms @ self._before)
        if expected:
            seconds = min(seconds, MOST_SURPRISE * max(expected, self.of(draft)))
        self._more.saw(terms, seconds - expected)

    def of(self, draft: "Draft") -> float:
        """Expected seconds; 0 where nothing is known."""
        return max(0.0, float(draft.terms() @ (self._before + self._more.weights)))

    def charged(self, draft: "Draft") -> float:
        """Expected seconds, of which what is read before is paid by all drafts that it is lately
        of use for: a drafter that is dropped again after a draft or two was read up for nothing.
        The longer it has not drafted, the less is charged."""
        paid = self._late / self._drafts
        seconds = self.of(replace(draft, late=paid * draft.late, missing=paid * draft.missing))
        return float(seconds * 0.5 ** (self._idle / TRIED_AGAIN))

    def sat_out(self) -> None:
        """A step without it."""
        self._more.fade(IDLE_FORGET)
        self._idle += 1

    def rehearsed(self, drafts: Sequence[tuple["Draft", float]]) -> None:
        """Before anybody was served they took so long: that is what is expected from now on, where
        nothing newer is known."""
        found = Regression(np.diag(np.square(DRAFT_SURE)), forget=0.0)
        for draft, seconds in drafts:
            found.saw(draft.terms(), seconds - float(draft.terms() @ self._before))
        self._before = self._before + found.weights
        self._more = Regression(np.diag(np.square(REHEARSED_SURE)), DRAFT_FORGET)


@dataclass(frozen=True, slots=True)
class Draft:
    """What a drafter is to do: so many levels for so many sequences, of which `late` have missed so
    much that it reads their `missing` tokens first."""

    levels: float
    sequences: float
    late: float = 0.0
    missing: float = 0.0

    def terms(self) -> Floats:
        """The features of `DraftSeconds` [6]."""
        more = (self.sequences - 1.0) / ONE_MORE
        return np.array(
            [1.0, self.levels, more, self.levels * more, self.late, self.missing / READ]
        )
