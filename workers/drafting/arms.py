"""Ways to draft, and the tokens per second that each brought in batches of each size."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from workers.drafting.acceptance import Traffic
from workers.drafting.fading import WEIGHT, FadingRatio
from workers.drafting.step_costs import MOST_SURPRISE, Finished, Floats

BUCKETS = (1, 2, 4, 8, 16)
"""Least sequences of a step of each bucket."""
REMEMBERED = 1024.0
"""Steps of a bucket after which its realised seconds count for 1/e."""


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to draft. levels: of a learned draft, which is a chain or, as `tree`, ends where
    another level does not pay; 0 drafts with none. look_ups: whether texts are looked up."""

    levels: int = 0
    look_ups: bool = False
    tree: bool = False

    @property
    def whole(self) -> bool:
        """Whether a large batch verifies the whole drafts: rows of even length cost less attention
        than is won by leaving improbable tokens out."""
        return self.levels > 0 and not (self.tree or self.look_ups)


NOTHING, LOOK_UPS_ALONE = Arm(), Arm(look_ups=True)


def arms_of(levels: int, *, look_ups: bool) -> list[Arm]:
    """Return all arms of a learned drafter with up to so many levels; 0 for no drafter."""
    chains = [Arm(depth) for depth in (1, 2, 3) if depth <= levels]
    learned = [*chains, Arm(levels, tree=True)] if levels else []
    merged = [Arm(one.levels, look_ups=True, tree=one.tree) for one in learned]
    return [NOTHING, *learned, *([LOOK_UPS_ALONE, *merged] if look_ups else [])]


@dataclass(slots=True)
class Realised:
    """Steps with an arm.

    plain: seconds in which plain decoding would emit their tokens by the table of step costs, so
    that batches of one bucket compare. seconds: that they took. accepted: draft tokens of a
    sequence with a learned draft. slower: a step's seconds, in plain steps.
    """

    plain: float = 0.0
    seconds: float = 0.0
    steps: float = 0.0
    accepted: FadingRatio = field(default_factory=FadingRatio)
    slower: FadingRatio = field(default_factory=lambda: FadingRatio(memory=64.0))

    def saw(self, plain: float, seconds: float) -> None:
        """Add a step. One that took very long was disturbed."""
        if self.steps >= 1.0:
            seconds = min(seconds, MOST_SURPRISE * self.seconds / self.steps)
        self.plain += plain
        self.seconds += seconds
        self.steps += 1.0

    def speedup(self, prior: float, seconds: float) -> float:
        """Return the speedup over plain decoding by the table.

        prior: expected before anything was realised. seconds: expected of a step.
        """
        weight = WEIGHT * seconds
        return (self.plain + prior * weight) / (self.seconds + weight)

    def fade(self, share: float) -> None:
        """Forget a share of the steps."""
        self.plain *= 1.0 - share
        self.seconds *= 1.0 - share
        self.steps *= 1.0 - share


@dataclass(slots=True)
class Place:
    """What is known of the arms in batches of a bucket, at temperature 0 or not.

    steps: seen. drafted: of them, when a learned drafter drafted last. decisions: made.
    """

    bucket: int
    greedy: bool
    arms: dict[Arm, Realised] = field(default_factory=dict)
    steps: int = 0
    drafted: int = 0
    decisions: int = 0

    @property
    def small(self) -> bool:
        """Whether drafts are chosen in every step for every sequence."""
        return self.bucket < BUCKETS[2]

    @property
    def traffic(self) -> Traffic:
        """See acceptance.Traffic."""
        return self.greedy, self.small

    @property
    def realised(self) -> Realised:
        """Return what all arms realised together."""
        everyone = self.arms.values()
        return Realised(sum(one.plain for one in everyone), sum(one.seconds for one in everyone))

    def of(self, arm: Arm) -> Realised:
        """Return what an arm realised."""
        return self.arms.setdefault(arm, Realised())

    def saw(self, arm: Arm, step: Finished, table: Floats) -> None:
        """Learn from a step with an arm. table: see StepCosts.table."""
        for one in self.arms.values():
            one.fade(1.0 / REMEMBERED)
        plain = step.tokens * float(table[step.sequences]) / step.sequences
        self.of(arm).saw(plain, step.seconds)
        self.steps += 1


def bucket_of(sequences: int) -> int:
    """Return the bucket of a batch."""
    return max(bucket for bucket in BUCKETS if bucket <= sequences)


def worthwhile(probabilities: Sequence[Sequence[float]], prices: Floats) -> tuple[list[int], float]:
    """Return how many draft tokens of each sequence are worth verifying, and what they bring in
    tokens.

    probabilities: of each sequence's tokens, falling, each with all before it. prices: what 0, 1,
    2, ... tokens cost, in tokens. Costs are a staircase: what does not pay now may pay with the
    next ones.
    """
    owners = np.repeat(np.arange(len(probabilities)), [len(one) for one in probabilities])
    tokens = np.asarray([p for one in probabilities for p in one], float)
    if not len(tokens):
        return [0] * len(probabilities), 0.0
    order = np.argsort(-tokens, kind="stable")
    gains = np.cumsum(tokens[order]) - prices[1 : len(tokens) + 1]
    best = int(gains.argmax())
    if gains[best] <= 0.0:
        return [0] * len(probabilities), 0.0
    granted = np.bincount(owners[order][: best + 1], minlength=len(probabilities))
    return granted.tolist(), float(gains[best])
