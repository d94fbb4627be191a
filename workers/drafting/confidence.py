"""Calibration of a drafter's own probabilities."""

import math

from workers.drafting.fading import EXCHANGED, FadingRatio

EDGES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9)
"""Between bins of the drafter's probability."""
DEPTHS = 4
"""Levels with bins of their own; deeper ones share the last."""
WEIGHT, MEMORY = 4.0, 500.0


class Confidence:
    """Learn how often drafted tokens are accepted, by the drafter's probability of them, apart for
    answers at temperature 0."""

    def __init__(self) -> None:
        self._ratios: dict[tuple[bool, int, int], FadingRatio] = {}

    def probability(self, value: float, depth: int, *, greedy: bool) -> float:
        """Return the probability that a token at a depth (from 0) and all above it are accepted.

        value: sum of the drafter's log-probabilities along its path.
        """
        stated = math.exp(value)
        return min(1.0, stated * self._ratio(stated, depth, greedy).value)

    def saw(self, value: float, depth: int, *, greedy: bool, accepted: bool) -> None:
        """Learn whether such a token was the target's choice."""
        stated = math.exp(value)
        self._ratio(stated, depth, greedy).saw(accepted, stated)

    def discount(self) -> None:
        """Forget most of what was learned, since another head drafts from now on."""
        for ratio in self._ratios.values():
            ratio.fade(EXCHANGED)

    def _ratio(self, stated: float, depth: int, greedy: bool) -> FadingRatio:
        kind = greedy, min(depth, DEPTHS - 1), sum(stated > edge for edge in EDGES)
        if kind not in self._ratios:
            self._ratios[kind] = FadingRatio(weight=WEIGHT, memory=MEMORY)
        return self._ratios[kind]
