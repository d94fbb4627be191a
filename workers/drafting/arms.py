"""Ways to draft, and the tokens per second that each brought in batches of each size."""

from dataclasses import astuple, dataclass

from workers.drafting.acceptance import Acceptance, Traffic
from workers.drafting.estimates import Estimates, FadingRatio
from workers.drafting.step_costs import BUCKETS

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


class Place:
    """What is known of batches of a bucket, at temperature 0 or not.

    small: whether drafts are chosen in every step for every sequence. accepted: draft tokens of a
    sequence in a step with a learned draft. idle: steps since a learned drafter drafted. decisions:
    made.
    """

    def __init__(self, estimates: Estimates, bucket: int, *, greedy: bool) -> None:
        self.bucket, self.greedy, self.small = bucket, greedy, bucket < BUCKETS[2]
        self.traffic: Traffic = greedy, self.small
        self.accepted = estimates.of("accepted", bucket, greedy)
        self.idle = self.decisions = 0
        self._estimates = estimates

    def realised(self, arm: Arm) -> FadingRatio:
        """Return an arm's realised tokens over those expected in the same seconds, both of a
        sequence."""
        name = "realised", self.bucket, self.greedy, *astuple(arm)
        return self._estimates.of(*name, weight=TRUSTED)
