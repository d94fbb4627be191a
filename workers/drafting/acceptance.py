"""How often a learned drafter's tokens are accepted: by level, and by the drafter's confidence."""

import json
import math
from itertools import accumulate
from pathlib import Path

import numpy as np

from workers.drafting.fading import EXCHANGED, FadingRatio

USUAL = 0.65
"""Share of drafts whose first level is accepted, where the bundle's routing table says nothing."""
EDGES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9)
"""Between bins of the drafter's probability."""
DEPTHS = 4
"""Levels with bins of their own; deeper ones share the last."""

Traffic = tuple[bool, bool]
"""Whether all answers are at temperature 0, and whether the batch is small."""


class Acceptance:
    """Track how often each level of a drafter's drafts is accepted where the level above is.

    levels: the most that it drafts. usual: the share of every level before anything is seen, at
    temperature 0 and above. Small batches draft wider trees, so they are counted apart.
    """

    def __init__(self, name: str, levels: int, usual: tuple[float, float] = (USUAL, USUAL)) -> None:
        self.name, self.levels, self.usual = name, levels, usual
        self._levels: dict[Traffic, list[FadingRatio]] = {
            (greedy, small): [FadingRatio() for _ in range(levels)]
            for greedy in (False, True)
            for small in (False, True)
        }
        self._confidence: dict[tuple[bool, int, int], FadingRatio] = {}

    def shares(self, traffic: Traffic) -> list[float]:
        """Return each level's share of accepted drafts. A level with little data gets a share near
        that of the level above."""
        ratios = self._levels[traffic]
        usual = self.usual[0 if traffic[0] else 1]
        return list(accumulate(ratios, lambda above, one: one.given(above), initial=usual))[1:]

    def path(self, traffic: Traffic, ease: float = 1.0) -> list[float]:
        """Return the probability that each level and all above it are accepted. ease: of a
        sequence, its accepted over usual tokens."""
        shares = (min(1.0, ease * share) for share in self.shares(traffic))
        return list(accumulate(shares, lambda above, share: above * share))

    def saw(self, traffic: Traffic, held: int, known: int) -> None:
        """Learn how many levels of a draft were accepted.

        known: number of levels at which the target made a choice. held: how many were accepted.
        """
        for level, ratio in enumerate(self._levels[traffic][: min(known, held + 1)]):
            ratio.saw(level < held)

    def probability(self, value: float, depth: int, *, greedy: bool) -> float:
        """Return the probability that a token at a depth (from 0) and all above it are accepted.

        value: sum of the drafter's log-probabilities along its path.
        """
        stated = math.exp(value)
        return min(1.0, stated * self._bin(stated, depth, greedy).value)

    def saw_token(self, value: float, depth: int, *, greedy: bool, accepted: bool) -> None:
        """Learn whether such a token was the target's choice."""
        stated = math.exp(value)
        self._bin(stated, depth, greedy).saw(accepted, stated)

    def discount(self) -> None:
        """Forget most of what was learned, since another head drafts from now on."""
        for ratios in (self._confidence.values(), *self._levels.values()):
            for ratio in ratios:
                ratio.fade(EXCHANGED)

    def _bin(self, stated: float, depth: int, greedy: bool) -> FadingRatio:
        key = greedy, min(depth, DEPTHS - 1), sum(stated > edge for edge in EDGES)
        if key not in self._confidence:
            self._confidence[key] = FadingRatio()
        return self._confidence[key]


def routed_shares(routing: Path, method: str, levels: int) -> tuple[float, float]:
    """Return the share of every level at temperature 0 and above with which a method with so many
    levels has the acceptance of a routing table; USUAL where there is no table of it."""
    try:
        names = json.loads((routing / "routing.json").read_text())["methods"]
        with np.load(routing / "routing.npz") as arrays:
            at = names.index(method)
            tokens, steps = (arrays[f"acceptance_{of}"][:, at].sum(0) for of in ("tokens", "steps"))
        greedy, sampled = tokens[0] / steps[0], tokens[1:].sum() / steps[1:].sum()
        return share_of(float(greedy), levels), share_of(float(sampled), levels)
    except (OSError, ValueError, KeyError, IndexError, ZeroDivisionError):
        return USUAL, USUAL


def share_of(acceptance: float, levels: int) -> float:
    """Return the share a of every level with which acceptance = 1 + a + ... + a^levels."""
    shares = np.linspace(0.0, 1.0, 1001)
    tokens = sum(shares**level for level in range(levels + 1))
    return float(np.interp(acceptance, tokens, shares))
