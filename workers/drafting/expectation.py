"""What a learned drafter's next draft is worth, predicted from its earlier drafts."""

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from workers.drafting.fading import EXCHANGED, FadingRatio
from workers.drafting.goodput import Floats

AT_FIRST = 0.65
"""Share of drafts whose first level is accepted, before any is seen."""
LEVEL_WEIGHT, LEVEL_MEMORY = 12.0, 150.0
CHAINS = (1, 2, 4)
"""Levels of the chains that are offered in addition to the longest."""
CERTAIN = 0.99
"""Greatest probability of a token."""
MOST_LEVELS = 8
NODES, TREES = 20, 16
"""Most probable nodes of a tree that are remembered; drafts over which trees are averaged."""
OPTIMISM, LEAST_TRUST = 1.5, 0.5
"""Greatest and least factor on what a drafter is expected to bring. The greatest is that of an
untried drafter, so that it is tried, and returns while the drafter is idle (as in UCB)."""
TRUST_WEIGHT, TRUST_MEMORY = 6.0, 150.0
IDLE = 1.0 / 400
"""Share of the trust's observations that a step without a draft removes."""


class Expectation:
    """Predict the accepted tokens of a drafter with up to `levels` levels.

    For all sequences together it knows how often each level is accepted where the level above is.
    A sequence's `ease` scales the odds.
    """

    def __init__(self, name: str, levels: int) -> None:
        self.name, self.levels = name, min(levels, MOST_LEVELS)
        self._trust = FadingRatio(OPTIMISM, weight=TRUST_WEIGHT, memory=TRUST_MEMORY)
        self._ratios = [
            FadingRatio(weight=LEVEL_WEIGHT, memory=LEVEL_MEMORY) for _ in range(self.levels)
        ]
        self._shares = self._usual()
        self._tree, self._drawn = np.zeros((2, NODES)), 0
        self._depth = 0.0

    @property
    def trust(self) -> float:
        """The factor on all that is expected: accepted over expected tokens of the steps that it
        was chosen for."""
        return min(OPTIMISM, max(LEAST_TRUST, self._trust.value))

    def share(self, level: int) -> float:
        """Return how often a level (from 0) is accepted where the one above is."""
        return self._shares[min(level, self.levels - 1)]

    def accepted(self, eases: Sequence[float] = (1.0,)) -> Floats:
        """Return the probability that each level and all above it are accepted, of sequences with
        these eases [n, levels]."""
        shares, scale = np.array(self._shares), np.array(eases)[:, None]
        shares = scale * shares / (1.0 - shares + scale * shares)
        return np.asarray(np.cumprod(np.minimum(CERTAIN, shares), axis=1))

    def offers(self, eases: Sequence[float]) -> list[tuple[float, Floats]]:
        """Return drafts of several depths: levels, and the probabilities of each sequence's tokens
        [n, tokens], falling.

        Once TREES trees were drawn (`drew`), these are the first level and all nodes of the mean
        tree, scaled to each sequence. Before that they are chains: a few shallow trees would keep a
        drafter from being asked for others.
        """
        chains = self.accepted(eases)
        if self._drawn < TREES:
            depths = sorted({n for n in (*CHAINS, self.levels) if n <= self.levels})
            return [(n, np.minimum(CERTAIN, self.trust * chains[:, :n])) for n in depths]
        whole = chains[:, : max(1, round(self._depth))].sum(axis=1)
        expected = np.stack([chains[:, 0], whole])
        # Drafters are chosen where much is expected of them, so a sequence's own share is too high
        # more often than too low: only its root counts.
        usual = np.maximum(self._tree.sum(axis=1), 1e-9)[:, None]
        scale = self.trust * np.sqrt(expected / usual)
        tokens = np.minimum(CERTAIN, scale[:, :, None] * self._tree[:, None])
        first = np.count_nonzero(self._tree[0])
        return [(1.0, tokens[0, :, :first]), (self._depth, tokens[1])]

    def drew(self, probabilities: Sequence[float], depths: Sequence[int]) -> None:
        """Learn from a tree, by its nodes' probabilities and depths."""
        first = [p for p, depth in zip(probabilities, depths, strict=True) if depth == 0]
        drawn = np.zeros((2, NODES))
        for row, nodes in zip(drawn, (first, probabilities), strict=True):
            likeliest = sorted(nodes, reverse=True)[:NODES]
            row[: len(likeliest)] = likeliest
        depth = 1.0 + max(depths, default=0)
        self._drawn = min(TREES, self._drawn + 1)
        self._tree += (drawn - self._tree) / self._drawn
        self._depth += (depth - self._depth) / self._drawn

    def saw(self, held: int, known: int) -> float:
        """Learn that the first `held` levels of a draft were accepted, of those of which the
        target's choice is known; return how many were expected of a usual sequence."""
        looked_at = min(known, held + 1, self.levels)
        expected = sum(self._shares[:looked_at])
        for level, ratio in enumerate(self._ratios[:looked_at]):
            ratio.saw(level < held)
        self._shares = self._usual()
        return expected

    def settled(self, accepted: float, expected: float) -> None:
        """Learn what was accepted in a step that it was chosen for, where `expected` draft tokens
        were expected, with its trust counted."""
        self._trust.saw(accepted, expected / self.trust)

    def idle(self) -> None:
        """Count a step in which it did not draft."""
        self._trust.fade(IDLE)

    def discount(self) -> None:
        """Forget most of what was learned, since another head drafts from now on."""
        for ratio in (self._trust, *self._ratios):
            ratio.fade(EXCHANGED)
        self._shares = self._usual()
        self._drawn = 0

    def _usual(self) -> list[float]:
        """Return the shares; a level of which little is known is taken to be as the one above."""
        ratios = self._ratios
        return list(accumulate(ratios, _given, initial=AT_FIRST))[1:]


def _given(above: float, ratio: FadingRatio) -> float:
    return ratio.given(above)


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
