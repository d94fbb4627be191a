"""How often a drafted token and all before it come, by the drafter's own probability of them."""

import math

EDGES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9)
"""Between bins of the drafter's probability."""
DEPTHS = 4
"""Levels that are told apart; the deeper ones are taken together."""
WEIGHT = 4.0
"""Of the drafter's own word, in tokens that come."""
MEMORY = 500.0
"""Expected tokens of a bin after which earlier ones weigh less."""

Kind = tuple[bool, int, int]


class Confidence:
    """Calibrates a drafter's probabilities by every token of which it is known whether it came, in
    answers at temperature 0 and in others apart."""

    def __init__(self) -> None:
        self._came: dict[Kind, list[float]] = {}

    def survival(self, value: float, depth: int, *, greedy: bool) -> float:
        """The probability that a token at a depth (from 0) and all above it come.

        value: sum of the drafter's log-probabilities along its path.
        """
        said = math.exp(value)
        came, expected = self._came.get(_kind(said, depth, greedy), (0.0, 0.0))
        return min(1.0, said * (came + WEIGHT) / (expected + WEIGHT))

    def saw(self, value: float, depth: int, *, greedy: bool, came: bool) -> None:
        """Such a token came with all above it, or not."""
        said = math.exp(value)
        counts = self._came.setdefault(_kind(said, depth, greedy), [0.0, 0.0])
        keep = 1.0 - said / MEMORY if counts[1] > MEMORY else 1.0
        counts[0] = counts[0] * keep + came
        counts[1] = counts[1] * keep + said


def _kind(said: float, depth: int, greedy: bool) -> Kind:
    return greedy, min(depth, DEPTHS - 1), sum(said > edge for edge in EDGES)
