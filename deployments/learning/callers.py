"""The ingresses that call the feedback actor."""

import time
from collections import OrderedDict
from collections.abc import Sequence

from schemas import Observation

CALLER_SECONDS = 30.0
"""Time without a call after which an ingress no longer counts."""

COUNTED = 200_000
"""Ids of observations to remember: what 20 ingresses keep while the store is away."""


class Callers:
    """Count the ingresses, and tell their new observations from those that they send again.

    While the store is away, ingresses send again more than the learned state remembers
    (`router.learner.REMEMBERED_IDS`).
    """

    def __init__(self) -> None:
        self._called: dict[str, float] = {}
        self._counted: OrderedDict[str, None] = OrderedDict()

    def called(self, ingress: str) -> None:
        """Record a call of the ingress with this id."""
        now = time.monotonic()
        self._called[ingress] = now
        self._called = {i: at for i, at in self._called.items() if at >= now - CALLER_SECONDS}

    @property
    def ingresses(self) -> int:
        """Return how many ingresses have called lately."""
        return len(self._called)

    def new(self, observations: Sequence[Observation]) -> list[Observation]:
        """Return the observations that were not seen before."""
        new = [o for o in observations if o.observation_id not in self._counted]
        self._counted.update(dict.fromkeys(o.observation_id for o in new))
        while len(self._counted) > COUNTED:
            self._counted.popitem(last=False)
        return new
