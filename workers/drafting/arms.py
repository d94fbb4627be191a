"""Ways to draft, and the tokens per second that each brought in batches of each size."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np

from workers.drafting.acceptance import Acceptance, Traffic
from workers.drafting.estimates import Estimates
from workers.drafting.step_costs import Floats

BUCKETS = (1, 2, 4, 8, 16)
"""Least sequences of a step of each bucket."""
TRUSTED = 32.0
"""Tokens of a sequence after which an arm's realised speed counts as much as the expected one."""


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to draft. levels: of the draft of `drafter`, which is a chain or, as `tree`, ends where
    another level does not pay; 0 drafts with none. look_ups: whether texts are looked up."""

    drafter: str = ""
    levels: int = 0
    look_ups: bool = False
    tree: bool = False

    @property
    def whole(self) -> bool:
        """Whether a large batch verifies the whole drafts: rows of even length cost less attention
        than is won by leaving improbable tokens out."""
        return self.levels > 0 and not (self.tree or self.look_ups)


NOTHING, LOOK_UPS_ALONE = Arm(), Arm(look_ups=True)


def arms_of(drafter: Acceptance | None, *, look_ups: bool) -> list[Arm]:
    """Return all arms with a learned drafter or none."""
    learned = list[Arm]()
    if drafter is not None:
        learned = [Arm(drafter.name, depth) for depth in (1, 2, 3) if depth <= drafter.levels]
        learned.append(Arm(drafter.name, drafter.levels, tree=True))
    merged = [Arm(one.drafter, one.levels, look_ups=True, tree=one.tree) for one in learned]
    return [NOTHING, *learned, *([LOOK_UPS_ALONE, *merged] if look_ups else [])]


class Realised:
    """Steps with an arm.

    model: tokens of a sequence over those expected in the same seconds. slower: a step's seconds, in
    plain steps. accepted: draft tokens of a sequence with a learned draft.
    """

    def __init__(self, estimates: Estimates, *name: str | int | bool) -> None:
        self.model = estimates.of("model", *name, weight=TRUSTED)
        self.slower = estimates.of("slower", *name)
        self.accepted = estimates.of("accepted", *name)


class Place:
    """What is known of batches of a bucket, at temperature 0 or not.

    small: whether drafts are chosen in every step for every sequence. speedup: realised with all
    arms. steps: seen. drafted: of them, when a learned drafter drafted last. decisions: made.
    """

    def __init__(self, estimates: Estimates, bucket: int, *, greedy: bool) -> None:
        self.bucket, self.greedy, self.small = bucket, greedy, bucket < BUCKETS[2]
        self.traffic: Traffic = greedy, self.small
        self.speedup = estimates.of("speedup", bucket, greedy)
        self.steps = self.drafted = self.decisions = 0
        self._estimates = estimates
        self._arms: dict[Arm, Realised] = {}

    def of(self, arm: Arm) -> Realised:
        """Return what an arm realised."""
        if arm not in self._arms:
            name = self.bucket, self.greedy, *astuple(arm)
            self._arms[arm] = Realised(self._estimates, *name)
        return self._arms[arm]


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
    order = np.argsort(-tokens, kind="stable")
    gains = np.cumsum([0.0, *tokens[order]]) - prices[: len(tokens) + 1]
    best = int(gains.argmax())
    granted = np.bincount(owners[order][:best], minlength=len(probabilities))
    return granted.tolist(), float(gains[best])
