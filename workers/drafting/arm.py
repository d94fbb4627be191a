"""A learned drafter among several, and what is expected of it."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Protocol

NEWEST = 0.15
"""Weight of a sequence's newest draft in what is expected of the drafter there."""
BACK = 0.02
"""How far that goes back to the usual in each step that the drafter sits out."""
USUAL = 0.02
"""Weight of the newest draft in what is usual."""
AT_FIRST = 0.5
"""Share of drafts that are expected to hold at the first level, and of those at each further one,
of a drafter that nobody has seen."""
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
    """A drafter as a method was tuned for it, with up to that method's levels.

    How often a draft's first k levels hold is remembered for all sequences together, and for each
    of them, where it begins with what the router expects of such prompts, if `priors` is set.
    """

    def __init__(self, name: str, levels: int, *, priors: bool) -> None:
        self._priors = priors
        self.name, self.levels = name, min(levels, MOST_LEVELS)
        self._usual = [AT_FIRST ** (level + 1) for level in range(self.levels)]
        self._own: dict[Hashable, list[float]] = {}
        self._nodes: dict[int, float] = {}

    def expected(self, sequence: Drafted, levels: int) -> float:
        """Accepted tokens, were it to draft so many levels for the sequence now."""
        return sum(self._holds(sequence)[:levels])

    def nodes(self, levels: int) -> float:
        """Draft tokens of one sequence."""
        return self._nodes.get(levels, NODES * levels)

    def saw(self, sequence: Drafted, accepted: int, levels: int, nodes: int) -> None:
        """Of so many levels and tokens so many were accepted."""
        own = self._own[sequence.id] = list(self._holds(sequence))
        for level in range(min(levels, self.levels)):
            held = float(accepted > level)
            own[level] += NEWEST * (held - own[level])
            self._usual[level] += USUAL * (held - self._usual[level])
        known = self._nodes.get(levels, float(nodes))
        self._nodes[levels] = known + USUAL * (nodes - known)

    def sat_out(self, sequence: Drafted) -> None:
        """It did not draft for the sequence."""
        own = self._own.get(sequence.id)
        if own is not None:
            prior = self._prior(sequence)
            own[:] = [now + BACK * (then - now) for now, then in zip(own, prior, strict=True)]

    def forget(self, sequence: Drafted) -> None:
        """The sequence has ended."""
        self._own.pop(sequence.id, None)

    def _holds(self, sequence: Drafted) -> Sequence[float]:
        return self._own.get(sequence.id) or self._prior(sequence)

    def _prior(self, sequence: Drafted) -> Sequence[float]:
        """What is usual, raised or lowered to what the router expects."""
        accepted = sequence.accepted.get(self.name)
        if accepted is None or not self._priors:
            return self._usual
        factor = accepted / max(sum(self._usual), 1e-9)
        return [min(1.0, factor * held) for held in self._usual]
