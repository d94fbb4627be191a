"""The ingresses that call the feedback actor, and its answers to them."""

import time
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from schemas import DriftReport, Observation, RoutingTable, TableUpdate

CALLER_SECONDS = 30.0
"""Time without a call after which an ingress no longer counts. After failures it pauses for up to
12 s, and a call may take 5 (`deployments.actors`)."""

COUNTED = 200_000
"""Ids of observations to remember: what 20 ingresses keep while the store is away."""


@dataclass(frozen=True)
class Exchange:
    """Hold the actor's answer to an ingress.

    `table` is set only if the ingress asked for it and has another version; an update if it has one
    of the same fit. `taken`: whether the observations sent were learned from; they need not be sent
    again to this epoch. `acknowledged`: ids of observations of this ingress that have come into the
    store. `problem`: why nothing is stored at present. `ingresses`: how many have called lately.
    """

    table: RoutingTable | TableUpdate | None
    taken: bool
    acknowledged: frozenset[str]
    epoch: int
    problem: str | None
    drift: DriftReport
    ingresses: int


class Callers:
    """Count the ingresses, tell their new observations from those that they send again, and keep
    what has to be acknowledged to them.

    While the store is away, ingresses send again more than the learned state remembers
    (`router.learner.REMEMBERED_IDS`).
    """

    def __init__(self) -> None:
        self._called: dict[str, float] = {}
        self._counted: OrderedDict[str, None] = OrderedDict()
        self._unstored: OrderedDict[str, str] = OrderedDict()
        self._owed: defaultdict[str, set[str]] = defaultdict(set)

    def called(self, ingress: str) -> None:
        """Record a call of the ingress with this id."""
        now = time.monotonic()
        self._called[ingress] = now
        self._called = {i: at for i, at in self._called.items() if at >= now - CALLER_SECONDS}
        for gone in self._owed.keys() - self._called.keys():
            del self._owed[gone]

    @property
    def ingresses(self) -> int:
        """Return how many ingresses have called lately."""
        return len(self._called)

    @property
    def unstored(self) -> frozenset[str]:
        """Return the ids of the observations that are not in the store."""
        return frozenset(self._unstored)

    def new(self, ingress: str, observations: Sequence[Observation]) -> list[Observation]:
        """Return the observations of an ingress that were not seen before."""
        new = [o for o in observations if o.observation_id not in self._counted]
        known = {o.observation_id for o in observations} - {o.observation_id for o in new}
        self._owed[ingress] |= known - self._unstored.keys()
        self._unstored.update((o.observation_id, ingress) for o in new)
        self._counted.update(dict.fromkeys(o.observation_id for o in new))
        for ids in (self._counted, self._unstored):
            while len(ids) > COUNTED:
                ids.popitem(last=False)
        return new

    def stored(self, ids: Iterable[str]) -> None:
        """Record that observations are in the store."""
        for one in ids:
            ingress = self._unstored.pop(one, None)
            if ingress is not None:
                self._owed[ingress].add(one)

    def acknowledged(self, ingress: str) -> frozenset[str]:
        """Return the stored observations of an ingress that it was not told of before."""
        return frozenset(self._owed.pop(ingress, ()))
