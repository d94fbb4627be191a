"""Seconds of a step by the rows that it verifies, measured on this machine."""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workers.drafting.estimates import FadingRatio

Floats = NDArray[np.float64]

BUCKETS = (1, 2, 4, 8, 16)
"""Least sequences of a step of each bucket."""
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
    """Predict the seconds of a step's verification.

    Seconds by rows of one sequence are measured before serving. A step takes its bucket's recent
    mean, and for more or fewer rows the difference by the table, times one factor for the machine's
    speed. wanted: whether a drafter decides by costs; then forwards are measured before serving.
    """

    def __init__(self) -> None:
        self.wanted = False
        self.speed = FadingRatio()
        self._measured: list[tuple[int, float]] = []
        self._table = np.zeros(0)
        self._recent: dict[int, tuple[float, float]] = {}

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

    def seconds(self, bucket: int, rows: int) -> float:
        """Return the expected seconds of a step in batches of a size; of a new size it begins as
        the nearest one."""
        near = min(self._recent, key=lambda one: abs(one - bucket), default=bucket)
        table, seconds = self._recent.get(near, (0.0, 0.0))
        usual = float(self.table(rows)[rows])
        return max(seconds + self.speed.value * (usual - table), usual / MOST_SURPRISE)

    def saw(self, bucket: int, step: Finished) -> float:
        """Learn from a step; return its seconds without a disturbance of its verification."""
        most = MOST_SURPRISE * self.seconds(bucket, step.rows)
        seconds = min(step.seconds - step.drafting, most)
        usual, unit = float(self.table(step.rows)[step.rows]), float(self.table(1)[1])
        before = self._recent.get(bucket, (usual, seconds))
        more, took = (usual - before[0]) / unit, (seconds - before[1]) / unit
        self.speed.saw(more * took, more * more)
        self._recent[bucket] = (
            before[0] + unit * more / RECENT,
            before[1] + unit * took / RECENT,
        )
        return step.drafting + seconds


def bucket_of(sequences: int) -> int:
    """Return the bucket of a batch."""
    return max(bucket for bucket in BUCKETS if bucket <= sequences)


def worthwhile(probabilities: Sequence[Sequence[float]], prices: Floats) -> tuple[list[int], float]:
    """Return how many draft tokens of each sequence are worth verifying, and what they bring in
    tokens.

    probabilities: of each sequence's tokens, falling, each with all before it. prices: what 0, 1,
    2, ... tokens cost, in tokens. Costs are a staircase: what does not pay now may pay with the
    next ones.
    """
    owners = np.repeat(np.arange(len(probabilities)), [len(one) for one in probabilities])
    tokens = np.asarray([p for one in probabilities for p in one], float)
    order = np.argsort(-tokens, kind="stable")
    gains = np.cumsum([0.0, *tokens[order]]) - prices[: len(tokens) + 1]
    best = int(gains.argmax())
    granted = np.bincount(owners[order][:best], minlength=len(probabilities))
    return granted.tolist(), float(gains[best])
