"""How often a learned drafter's tokens are accepted: by level, and by the drafter's confidence."""

import json
import math
from itertools import accumulate
from pathlib import Path

import numpy as np

from workers.drafting.estimates import Estimates, FadingRatio

USUAL = 0.65
"""Share of drafts whose first level is accepted, where the bundle's routing table says nothing."""

Traffic = tuple[bool, bool]
"""Whether all answers are at temperature 0, and whether the batch is small."""


class Acceptance:
    """Track how often each level of a drafter's drafts is accepted where the level above is.

    levels: the most that it drafts. usual: the share of every level before anything is seen, at
    temperature 0 and above. Small batches draft wider trees, so they are counted apart.
    """

    def __init__(
        self,
        name: str,
        levels: int,
        usual: tuple[float, float] = (USUAL, USUAL),
        estimates: Estimates | None = None,
    ) -> None:
        self.name, self.levels, self.usual = name, levels, usual
        self._estimates = estimates or Estimates()

    def shares(self, traffic: Traffic) -> list[float]:
        """Return each level's share of accepted drafts. A level with little data gets a share near
        that of the level above."""
        ratios = [self._level(traffic, level) for level in range(self.levels)]
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
        for level in range(min(known, held + 1, self.levels)):
            self._level(traffic, level).saw(level < held)

    def probability(self, value: float, depth: int, *, greedy: bool) -> float:
        """Return the probability that a token at a depth (from 0) and all above it are accepted.

        value: sum of the drafter's log-probabilities along its path.
        """
        return min(1.0, math.exp(value) * self._confidence(value, depth, greedy).value)

    def saw_token(self, value: float, depth: int, *, greedy: bool, accepted: bool) -> None:
        """Learn whether such a token was the target's choice."""
        self._confidence(value, depth, greedy).saw(accepted, math.exp(value))

    def _level(self, traffic: Traffic, level: int) -> FadingRatio:
        return self._estimates.of("level", self.name, *traffic, level)

    def _confidence(self, value: float, depth: int, greedy: bool) -> FadingRatio:
        """Return accepted over stated probability, by halves of a nat and for the first levels."""
        return self._estimates.of(
            "confidence", self.name, greedy, min(depth, 3), max(-8, round(2.0 * value))
        )


def routed_shares(routing: Path, method: str, levels: int) -> tuple[float, float]:
    """Return the share of every level at temperature 0 and above with which a method with so many
    levels has the acceptance of a routing table; USUAL where there is no table of it.

    A vLLM method that the table lacks has the acceptance of the torch engine's method.
    """
    try:
        names = json.loads((routing / "routing.json").read_text())["methods"]
        at = names.index(method if method in names else method.removeprefix("vllm_"))
        with np.load(routing / "routing.npz") as arrays:
            tokens, steps = (arrays[f"acceptance_{of}"][:, at].sum(0) for of in ("tokens", "steps"))
    except (OSError, ValueError, KeyError, IndexError):
        return USUAL, USUAL
    shares = np.linspace(0.0, 1.0, 1001)
    accepted = sum(shares**level for level in range(levels + 1))
    greedy, sampled = (
        float(np.interp(tokens[of].sum() / steps[of].sum(), accepted, shares))
        if steps[of].sum() > 0.0
        else USUAL
        for of in (slice(1), slice(1, None))
    )
    return greedy, sampled
