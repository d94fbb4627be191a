"""A learned drafter among several, and what is expected of it."""

import math
from collections.abc import Hashable, Sequence
from itertools import accumulate
from operator import mul
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from workers.drafting.ease import Ease
from workers.drafting.promises import Promises

Floats = NDArray[np.float64]

AT_FIRST = 0.5
"""Share of drafts that hold at a level where those before it held, of a drafter that nobody has
seen."""
WEIGHT = 4.0
"""Of what is expected of a level before it was seen (as of the level above it), in drafts."""
MEMORY = 150.0
"""Drafts after which earlier ones weigh less in what is usual."""
BACK = 0.01
"""The same with each step in which it did not draft."""
CERTAIN = 0.99
"""Share of a level at most."""
MOST_LEVELS = 8
NODES = 20
"""Tokens of a tree of which something is expected, the likeliest."""
NONE = 1e-9
"""Tokens: none."""
BELIEF = 0.5
"""Of how many more tokens a sequence has than lately drawn trees, as a power: who drafts is chosen
by it, so that it is too high more often than too low."""
DRAWN, DRAWS = 16, 8
"""Trees that are remembered, and those by which a few sequences are decided."""
DOUBT = 0.5
"""By how much more than is expected of a drafter is hoped that was never seen, as a share; with the
drafts that it was seen in it falls as their square root."""
IDLE = 1.0 / 400
"""Share of these that is forgotten with each step in which it did not draft for a sequence: a
drafter that began unluckily is tried again (discounted UCB, arXiv 0805.3415)."""
IDLE_PROMISES = 1.0 / 1600
"""The same of what came of what was promised of it: what did not pay is tried seldom."""
KIN = 0.5
"""Of what another drafter's draft says of this one's, in drafts of its own."""


class Drafted(Protocol):
    """A sequence, by an id that it has as long as it lives."""

    @property
    def id(self) -> Hashable: ...


class Arm:
    """A drafter, with up to so many levels.

    How often a draft's levels hold, each where those before it held, is remembered for all
    sequences together. For each of them one number is, by which it does better or worse than that.
    `tuned`: the levels of the method's own settings.
    """

    def __init__(self, name: str, levels: int, *, tuned: int | None = None) -> None:
        self.name, self.levels = name, min(levels, MOST_LEVELS)
        tuned = min(tuned or self.levels, self.levels)
        self._held = [0.0] * self.levels
        self._seen = [0.0] * self.levels
        self._usual = self._shares()
        self._ease = Ease()
        self._drawn = np.stack([np.tile(_chain(n), (DRAWN, 1)) for n in (1, tuned)])
        self._draws, self._reached = 0, float(tuned)
        self._drafts = 0.0
        self._promises = Promises()

    def expected(self, sequence: Drafted) -> Sequence[float]:
        """Draft tokens that come, were it to draft 1, 2, ... levels for the sequence now and all
        of that were verified."""
        return list(accumulate(accumulate(self._of(sequence), mul)))

    def chains(self, sequences: Sequence[Drafted]) -> list[Floats]:
        """By levels, were it to draft a chain of so many: of every sequence the probabilities that
        its tokens come [n, 1, levels], as `Offer` takes them, as far as is hoped."""
        known = np.array([list(accumulate(self._of(one), mul)) for one in sequences])
        survival = np.minimum(CERTAIN, self._hoped * known)
        return [survival[:, None, : level + 1] for level in range(self.levels)]

    def trees(self, sequences: Sequence[Drafted]) -> Floats:
        """Of every sequence the probabilities that the likeliest tokens of a tree come, of its
        first level alone and of all that it would draft, in several draws [2, n, draws, NODES], as
        `Offer` takes them. They are what lately was drawn, times what makes as many of them come as
        are expected of the sequence, and hoped."""
        known = [self.expected(one) for one in sequences]
        expected = np.array([(of[0], of[-1]) for of in known]).T
        count = len(sequences)
        each = max(1, DRAWS // count)
        picked = self._drawn[:, np.arange(count * each) % DRAWN].reshape(2, count, each, NODES)
        usual = self._drawn.sum(axis=(1, 2))[:, None] / DRAWN
        believed = self._hoped * usual * (expected / np.maximum(usual, NONE)) ** BELIEF
        factors = believed / np.maximum(picked.sum(axis=(2, 3)) / each, NONE)
        return np.asarray(np.minimum(CERTAIN, picked * factors[:, :, None, None]))

    @property
    def reached(self) -> float:
        """Levels that it lately drafted before it stopped."""
        return self._reached

    def drew(self, survival: Sequence[float], depths: Sequence[int]) -> None:
        """A tree, whose tokens come with these probabilities at these depths."""
        first = [sure for sure, depth in zip(survival, depths, strict=True) if depth == 0]
        for drawn, falling in zip(self._drawn, (first, survival), strict=True):
            likeliest = sorted(falling, reverse=True)[:NODES]
            drawn[self._draws % DRAWN] = likeliest + [0.0] * (NODES - len(likeliest))
        self._draws += 1
        self._reached += (1.0 + max(depths, default=0) - self._reached) / DRAWN

    def saw(self, sequence: Drafted, held: int, known: int) -> tuple[float, float]:
        """It drafted. Of so many levels it is known what the target chose, and the first `held`
        held. How many did, and how many were expected to."""
        before = self._usual
        self._drafts += 1.0
        expected = 0.0
        for level in range(min(known, held + 1, self.levels)):
            expected += before[level]
            keep = 1.0 - 1.0 / MEMORY if self._seen[level] > MEMORY else 1.0
            self._held[level] = keep * self._held[level] + (level < held)
            self._seen[level] = keep * self._seen[level] + 1.0
        came = float(min(held, known, self.levels))
        self._ease.saw(sequence.id, came, expected)
        self._usual = self._shares()
        return came, expected

    def kept(self, promised: float, came: float) -> None:
        """It was chosen because so many draft tokens were expected of a step, and so many came."""
        self._promises.saw(promised, came)

    def sat_out(self, sequence: Drafted) -> None:
        """It did not draft for the sequence."""
        self._drafts *= 1.0 - IDLE
        self._promises.fade(IDLE_PROMISES)
        self._ease.fade(sequence.id, BACK)

    def heard(self, sequence: Drafted, held: float, expected: float) -> None:
        """Another drafter did, and so many levels held where it was expected of so many: text that
        is easy for one is for others."""
        self._ease.saw(sequence.id, KIN * held, KIN * expected)

    def forget(self, sequence: Drafted) -> None:
        """The sequence has ended."""
        self._ease.forget(sequence.id)

    @property
    def _hoped(self) -> float:
        """Times what is expected."""
        return self._promises.kept * (1.0 + DOUBT / math.sqrt(1.0 + self._drafts))

    def _shares(self) -> list[float]:
        shares, above = list[float](), AT_FIRST
        for held, seen in zip(self._held, self._seen, strict=True):
            above = (held + WEIGHT * above) / (seen + WEIGHT)
            shares.append(above)
        return shares

    def _of(self, sequence: Drafted) -> list[float]:
        return [min(CERTAIN, s) for s in self._ease.shares(sequence.id, self._usual)]


def _chain(levels: int) -> Floats:
    """A tree before one was drawn [NODES]: one token a level."""
    drawn = np.zeros(NODES)
    drawn[:levels] = AT_FIRST ** np.arange(1, levels + 1)
    return drawn
