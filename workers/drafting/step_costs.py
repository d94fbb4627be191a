"""What a step costs here: seconds by the target's rows and the context, and by drafter, as they are
measured."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MEMORY = 0.05
"""Weight of the newest measurement."""
MOST_SURPRISE = 3.0
"""Times what was expected; what takes longer was disturbed."""
LEAST_OF_ROWS = 0.2
"""Share of a forward's seconds that its rows take at least, whatever the context."""
OFTEN = 20
"""Measurements of a size that count."""
TRUSTED = 3000
"""Measurements of other sizes until one is believed less and less,"""
HALF_LIFE = 5000.0
"""and those after which it is believed to take half as long."""
FORGET = 0.01
"""The same of drafting, whose measurements speak for each other."""
RIDGE = 1e-4
"""Of the least squares: keeps what was never seen small."""
ONE_MORE = 4.0
"""So many sequences more are taken to cost what one level more does, before that was seen."""


@dataclass(slots=True)
class _Size:
    """What one size takes: as it was measured first, and since; how often, and when last."""

    first: float
    mean: float
    again: int = 0
    last: int = 0


class Seconds:
    """Seconds of something by its size, from measurements at some sizes: never fewer for more,
    between two sizes as much as their distance says, and beyond the largest as steeply as up to it.

    A machine may have been busy when a size was measured, and who decides by that would never try
    it again. So a size that was measured only once is believed to have become as much faster or
    slower as those that were measured since, and what was long not measured takes less and less.
    """

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._known: list[_Size] = []
        self._count = 0
        self._rising = np.zeros(1)

    @property
    def known(self) -> bool:
        """Whether anything was measured."""
        return bool(self._sizes)

    def saw(self, size: int, seconds: float) -> None:
        """It took so long."""
        self._count += 1
        at = bisect_left(self._sizes, size)
        if at == len(self._sizes) or self._sizes[at] != size:
            self._sizes.insert(at, size)
            self._known.insert(at, _Size(seconds, seconds))
        else:
            one = self._known[at]
            weight = max(MEMORY, 1.0 - self._trust(one))
            one.mean += weight * (min(seconds, MOST_SURPRISE * one.mean) - one.mean)
            one.again += 1
        self._known[at].last = self._count
        self._rising = self._believed()

    def of(self, sizes: Floats | float) -> Floats:
        """Expected seconds of each size; 0 where nothing was measured."""
        if not self._sizes:
            return np.zeros_like(np.asarray(sizes, float))
        last, rising = self._sizes[-1], self._rising
        within = np.asarray(np.interp(sizes, self._sizes, rising))
        if len(self._sizes) == 1:
            return within
        slope = (rising[-1] - rising[0]) / (last - self._sizes[0])
        return np.asarray(within + slope * np.maximum(0.0, np.asarray(sizes) - last))

    def _believed(self) -> Floats:
        """What each size takes: what is trusted, rising; the others at most as long as they took,
        and never less than what is trusted of smaller ones."""
        changed = self._changed()
        trusted = [self._trust(one) == 1.0 for one in self._known]
        means = [one.mean * (1.0 if one.again else changed) for one in self._known]
        known = iter(_rising([mean for mean, is_it in zip(means, trusted, strict=True) if is_it]))
        return np.maximum.accumulate(
            [
                next(known) if is_it else mean * self._trust(one)
                for one, mean, is_it in zip(self._known, means, trusted, strict=True)
            ]
        )

    def _changed(self) -> float:
        """Times what was measured first, of the sizes that were measured since."""
        weights = [min(one.again, OFTEN) for one in self._known]
        changes = sum(
            weight * math.log(one.mean / one.first)
            for weight, one in zip(weights, self._known, strict=True)
            if weight
        )
        return math.exp(changes / (sum(weights) + OFTEN / 4))

    def _trust(self, one: _Size) -> float:
        return float(0.5 ** (max(0, self._count - one.last - TRUSTED) / HALF_LIFE))


def _rising(means: Sequence[float]) -> Floats:
    """Neighbours that fall are averaged (pool adjacent violators)."""
    blocks: list[tuple[float, int]] = []
    for mean in means:
        blocks.append((mean, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (low, many), (high, more) = blocks[-2:]
            blocks[-2:] = [((low * many + high * more) / (many + more), many + more)]
    return np.asarray([mean for mean, count in blocks for _ in range(count)])


class DraftSeconds:
    """Seconds of drafting, linear in the levels, the sequences and both together: what was seen of
    one number of levels and sequences says something of every other (least squares that forget).
    """

    def __init__(self) -> None:
        self._squares = np.eye(4) * RIDGE
        self._products = np.zeros(4)
        self._weights: Floats = np.zeros(4)

    def saw(self, levels: int, sequences: int, seconds: float) -> None:
        """It took so long."""
        x = _terms(levels, sequences)
        self._squares = (1.0 - FORGET) * self._squares + np.outer(x, x)
        self._squares += FORGET * RIDGE * np.eye(4)
        self._products = (1.0 - FORGET) * self._products + x * seconds
        self._weights = np.asarray(np.linalg.solve(self._squares, self._products), float)

    def of(self, levels: int, sequences: int) -> float:
        """Expected seconds; 0 where nothing was measured."""
        return max(0.0, float(_terms(levels, sequences) @ self._weights))


def _terms(levels: int, sequences: int) -> Floats:
    several = sequences / ONE_MORE
    return np.array([1.0, levels, several, levels * several])


class StepCosts:
    """Of one engine: of the target's forward by its rows and by the tokens of context that they
    attend to; of each drafter; and of the rest of a step (choosing tokens, books)."""

    def __init__(self) -> None:
        self.wanted = False
        """Whether somebody decides by them: then forwards are measured before anybody is served."""
        self._forward = Seconds()
        self._of_context = 0.0
        self._rest = 0.0
        self._draft: dict[str, DraftSeconds] = {}

    @property
    def known(self) -> bool:
        """Whether any forward was measured."""
        return self._forward.known

    def drafting(self, drafter: str, levels: int, sequences: int) -> float:
        """Seconds of drafting so many levels for so many sequences."""
        known = self._draft.get(drafter)
        return known.of(levels, sequences) if known else 0.0

    def saw_drafting(self, drafter: str, levels: int, sequences: int, seconds: float) -> None:
        """It took so long."""
        self._draft.setdefault(drafter, DraftSeconds()).saw(levels, sequences, seconds)

    def saw_forward(self, rows: int, context: int, seconds: float) -> None:
        """A forward of so many rows, over so many tokens of context of all sequences together."""
        expected = float(self._forward.of(rows)) + self._of_context * context
        if expected and context:
            # half of a surprise is the context's, in small steps (normalised LMS)
            self._of_context += MEMORY * (seconds - expected) / context / 2.0
            self._of_context = max(0.0, self._of_context)
        # what is said of the context may be too much, but never all of it
        self._forward.saw(rows, max(LEAST_OF_ROWS * seconds, seconds - self._of_context * context))

    def saw_rest(self, seconds: float) -> None:
        """The rest of a step took so long."""
        self._rest += MEMORY * (seconds - self._rest) if self._rest else seconds

    def step(self, rows: Floats | float, context: int) -> Floats:
        """Seconds of steps that verify so many rows, without drafting."""
        return self._forward.of(rows) + self._of_context * context + self._rest
