"""A learned drafter among several, and what is expected of it."""

from collections.abc import Hashable, Mapping, Sequence
from itertools import accumulate
from operator import mul
from typing import Protocol

AT_FIRST = 0.5
"""Share of drafts that hold at a level where those before it held, of a drafter that nobody has
seen."""
WEIGHT = 4.0
"""Of what is expected of a level before it was seen (as of the level above it), in drafts."""
MEMORY = 150.0
"""Drafts after which earlier ones weigh less in what is usual."""
OWN = 6.0
"""Accepted tokens that are expected of a sequence until it counts half how many came."""
NEWEST = 0.04
"""How much of a sequence's earlier drafts is forgotten with each."""
LATELY = 0.06
"""Weight of the newest draft in what is verified of drafts."""
BACK = 0.02
"""The same with each step without."""
CERTAIN = 0.99
"""Share of a level at most."""
MOST_LEVELS = 8
NODES = 2.0
"""By level, at first."""


class Drafted(Protocol):
    """A sequence, by an id that it has as long as it lives."""

    @property
    def id(self) -> Hashable: ...

    @property
    def accepted(self) -> Mapping[str, float]:
        """By method the accepted tokens of a draft that the router expects here."""
        ...


class Arm:
    """A drafter, with up to so many levels.

    How often a draft's levels hold, each where those before it held, is remembered for all
    sequences together. For each of them one number is, by which it does better or worse than that.
    It begins with what the router expects of such prompts, if `priors` is set; `tuned`: the levels
    of the method that the router knows.
    """

    def __init__(self, name: str, levels: int, *, priors: bool, tuned: int | None = None) -> None:
        self._priors = priors
        self.name, self.levels = name, min(levels, MOST_LEVELS)
        self._tuned = min(tuned or self.levels, self.levels)
        self._held = [0.0] * self.levels
        self._seen = [0.0] * self.levels
        self._usual = self._shares()
        self._own: dict[Hashable, tuple[float, float]] = {}
        self._nodes: dict[int, float] = {}
        self._kept = (CERTAIN, 1.0)

    def expected(self, sequence: Drafted) -> Sequence[float]:
        """Accepted tokens, were it to draft 1, 2, ... levels for the sequence now, and as much of
        that to be verified as lately was."""
        kept = self._kept[0] / self._kept[1]
        return [kept * held for held in accumulate(accumulate(self._of(sequence), mul))]

    def nodes(self, levels: int) -> float:
        """Draft tokens of one sequence."""
        return self._nodes.get(levels, NODES * levels)

    def saw(
        self, sequence: Drafted, held: int, known: int, levels: int, *, nodes: int, accepted: int
    ) -> None:
        """It drafted so many levels. Of `known` of them it is known what the target chose, and the
        first `held` held; so many tokens were verified, and of its own so many accepted."""
        before = self._before(sequence)
        came, expected = self._own.get(sequence.id, (0.0, 0.0))
        came, expected = came * (1.0 - NEWEST), expected * (1.0 - NEWEST)
        for level in range(min(known, held + 1, self.levels)):
            expected += before[level]
            came += level < held
            keep = 1.0 - 1.0 / MEMORY if self._seen[level] > MEMORY else 1.0
            self._held[level] = keep * self._held[level] + (level < held)
            self._seen[level] = keep * self._seen[level] + 1.0
        self._own[sequence.id] = came, expected
        self._usual = self._shares()
        keep = 1.0 - LATELY
        self._kept = keep * self._kept[0] + accepted, keep * self._kept[1] + held
        verified = self._nodes.get(levels, float(nodes))
        self._nodes[levels] = verified + LATELY * (nodes - verified)

    def sat_out(self, sequence: Drafted) -> None:
        """It did not draft for the sequence."""
        if sequence.id in self._own:
            came, expected = self._own[sequence.id]
            self._own[sequence.id] = came * (1.0 - BACK), expected * (1.0 - BACK)

    def forget(self, sequence: Drafted) -> None:
        """The sequence has ended."""
        self._own.pop(sequence.id, None)

    def _shares(self) -> list[float]:
        shares, above = list[float](), AT_FIRST
        for held, seen in zip(self._held, self._seen, strict=True):
            above = (held + WEIGHT * above) / (seen + WEIGHT)
            shares.append(above)
        return shares

    def _of(self, sequence: Drafted) -> list[float]:
        came, expected = self._own.get(sequence.id, (0.0, 0.0))
        ease = (came + OWN) / (expected + OWN)
        return [min(CERTAIN, ease * share) for share in self._before(sequence)]

    def _before(self, sequence: Drafted) -> list[float]:
        """What is usual, raised or lowered to what the router expects: as if all levels held
        equally often, without end, where a share of s has s / (1 - s) accepted tokens."""
        accepted = sequence.accepted.get(self.name)
        if accepted is None or not self._priors:
            return self._usual
        usual = sum(accumulate(self._usual[: self._tuned], mul))
        factor = accepted / (1.0 + accepted) * (1.0 + usual) / max(usual, 1e-9)
        return [min(CERTAIN, factor * share) for share in self._usual]
