"""How much better or worse drafts of one sequence do than what is expected of them."""

from collections.abc import Hashable, Sequence

WEIGHT = 6.0
"""Accepted tokens that are expected of a sequence until it counts half how many came."""
NEWEST = 0.04
"""How much of a sequence's earlier drafts is forgotten with each."""


class Ease:
    """By sequence, the tokens that came over those that were expected."""

    def __init__(self) -> None:
        self._of: dict[Hashable, tuple[float, float]] = {}

    def of(self, sequence: Hashable) -> float:
        """What is expected is to be multiplied by; 1 of a sequence that nobody has seen."""
        came, expected = self._of.get(sequence, (0.0, 0.0))
        return (came + WEIGHT) / (expected + WEIGHT)

    def shares(self, sequence: Hashable, usual: Sequence[float]) -> list[float]:
        """Of drafts' levels those that hold here, where usually so many do: in odds, so that many
        levels in a row are not promised what none could keep."""
        ease = self.of(sequence)
        return [ease * share / (1.0 - share + ease * share) for share in usual]

    def saw(self, sequence: Hashable, came: float, expected: float) -> None:
        """So many tokens came of a draft of which so many were expected, whatever the ease."""
        self.fade(sequence, NEWEST)
        earlier, then = self._of.get(sequence, (0.0, 0.0))
        self._of[sequence] = earlier + came, then + expected

    def fade(self, sequence: Hashable, share: float) -> None:
        """That much of what is known is forgotten."""
        if sequence in self._of:
            came, expected = self._of[sequence]
            self._of[sequence] = came * (1.0 - share), expected * (1.0 - share)

    def forget(self, sequence: Hashable) -> None:
        """The sequence has ended."""
        self._of.pop(sequence, None)
