"""What a step costs here, as it is measured: seconds by rows, sequences and context, and of each
drafter's drafts."""

from bisect import insort
from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from workers.drafting.draft_seconds import Draft, DraftSeconds
from workers.drafting.regression import MOST_SURPRISE, Regression

Floats = NDArray[np.float64]

KNOTS = (1.0, 4.0, 16.0, 64.0)
"""Rows at which steps may have become slower or faster than they were measured, each by itself;
between them by the logarithm of the rows."""
NOISE = 0.15
"""Of a step's seconds, relative; the standard deviations below are in the same unit."""
ALL, EACH = 1.0, 0.15
"""Of how much slower steps are than they were measured: in common, and of one knot beside it."""
SEQUENCE = 0.05
"""Of what a sequence costs, beside a forward of one row: in any step, and once more where not all
have equally many rows, so that attention needs padding, or calls of its own for some."""
TOKEN = 0.05 / 200
"""Of what a token of context costs, beside the same."""
FORGET = 1.0 / 400
"""Steps after which what was seen weighs less."""
ERRORS = 4096
"""Steps of which it is remembered how wrong their seconds were expected."""
FASTEST = 0.1
"""Of what was measured first: no step takes less."""
DOUBLED = 32.0
"""Rows that take twice as long as none, where nobody measured."""


class StepSeconds:
    """Seconds of a step without its drafting.

    They are what forwards of one sequence took by their rows, before anybody was served, times a
    factor for the machine as it is now, and something for every further sequence (a mask, a choice
    of tokens, books), more where their rows are uneven, and for every token of context. Rows and
    sequences are told apart because sixteen rows of one sequence take little more than half as long
    as one of each of sixteen. A size that was not seen lately is taken to have become slower or
    faster with the others.
    """

    def __init__(self) -> None:
        self._first: list[tuple[int, float]] = []
        self._known: tuple[Floats, Floats] | None = None
        common = np.full((len(KNOTS), len(KNOTS)), ALL**2)
        covariance = np.diag([0.0] * len(KNOTS) + [SEQUENCE**2, SEQUENCE**2, TOKEN**2])
        covariance[: len(KNOTS), : len(KNOTS)] = common + EACH**2 * np.eye(len(KNOTS))
        self._slower = Regression(covariance / NOISE**2, FORGET)
        self.errors: deque[float] = deque(maxlen=ERRORS)
        """Of the newest steps what was expected over what they took, less 1, before they were
        learned from."""

    @property
    def known(self) -> bool:
        """Whether anything was measured."""
        return bool(self._first)

    @property
    def forward(self) -> float:
        """Seconds of a forward of one row as it was measured first; 0 where nothing was."""
        return float(self._alone(np.ones(1))[0]) if self._first else 0.0

    def in_forwards(self, seconds: float) -> float:
        """So much over a forward of one row; 0 where nothing was measured."""
        return seconds / self.forward if self._first else 0.0

    def measured(self, rows: int, seconds: float) -> None:
        """A forward of one sequence's rows took so long, before anybody was served."""
        insort(self._first, (rows, seconds))
        self._known = None

    def saw(self, widths: Sequence[int], context: int, seconds: float) -> None:
        """A step took so long. widths: rows of each sequence. context: tokens of all together."""
        rows, sequences = np.array([float(sum(widths))]), len(widths)
        if not self._first:
            self.measured(0, seconds / (1.0 + rows[0] / DOUBLED))
        uneven = np.array([min(widths) < max(widths)])
        alone = self._alone(rows)
        features = self._features(rows, sequences, context, uneven)
        expected = float((alone + features @ self._slower.weights)[0])
        self.errors.append(expected / seconds - 1.0)
        taken = min(seconds, MOST_SURPRISE * expected)
        self._slower.saw(features[0] / alone[0], (taken - alone[0]) / alone[0])

    def of(self, rows: Floats, sequences: int, context: int) -> Floats:
        """Expected seconds of steps with so many rows [r], rising; 0 where nothing was measured.
        Where they are more than the sequences, these are taken to have unevenly many."""
        if not self._first:
            return np.zeros_like(rows)
        features = self._features(rows, sequences, context, rows > sequences)
        alone = self._alone(rows)
        seconds = alone + features @ self._slower.weights
        return np.asarray(np.maximum.accumulate(np.maximum(seconds, FASTEST * alone)))

    def _features(
        self, rows: Floats, sequences: int, context: int, uneven: NDArray[np.bool_]
    ) -> Floats:
        """Seconds that steps would take longer, were each of the weights 1 [r, knots + 3]."""
        one = float(self._alone(np.ones(1))[0])
        features = np.empty((len(rows), len(KNOTS) + 3))
        features[:, : len(KNOTS)] = self._alone(rows)[:, None] * self._near(rows)
        features[:, -3] = one * (sequences - 1.0)
        features[:, -2] = features[:, -3] * uneven
        features[:, -1] = one * context
        return features

    def _alone(self, rows: Floats) -> Floats:
        """What was measured of one sequence: rising, and beyond as steeply as up to there."""
        return np.asarray(self._table(int(rows.max()))[0][rows.astype(int)])

    def _near(self, rows: Floats) -> Floats:
        """How near they are to each of the knots [r, knots]; together 1."""
        return np.asarray(self._table(int(rows.max()))[1][rows.astype(int)])

    def _table(self, most: int) -> tuple[Floats, Floats]:
        """Of 0, 1, 2, ... rows, up to `most` at least."""
        if self._known is None or len(self._known[0]) <= most:
            rows = np.arange(2 * (most + 1)).astype(float)
            logs = np.log(np.maximum(1.0, rows))
            near = [np.interp(logs, np.log(KNOTS), at) for at in np.eye(len(KNOTS))]
            self._known = self._interpolated(rows), np.stack(near, axis=-1)
        return self._known

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
    """Of one engine: of its steps, and of each drafter's drafts."""

    def __init__(self) -> None:
        self.wanted = False
        """Whether somebody decides by them: then forwards are measured before anybody is served."""
        self.step = StepSeconds()
        self._draft: dict[str, DraftSeconds] = {}

    def drafting(self, drafter: str, draft: Draft) -> float:
        """Expected seconds of it that are to be paid now."""
        return self._of(drafter).charged(draft)

    def saw_drafting(self, drafter: str, draft: Draft, seconds: float) -> None:
        """It took so long."""
        self._of(drafter).saw(draft, seconds)

    def sat_out(self, drafter: str) -> None:
        """The drafter did not draft in this step."""
        self._of(drafter).sat_out()

    def rehearsed(self, drafter: str, drafts: Sequence[tuple[Draft, float]]) -> None:
        """Before anybody was served the drafter's drafts took so long."""
        self._of(drafter).rehearsed(drafts)

    def _of(self, drafter: str) -> DraftSeconds:
        if drafter not in self._draft:
            self._draft[drafter] = DraftSeconds(self.step.forward)
        return self._draft[drafter]
