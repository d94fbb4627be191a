"""The feedback actor's body: it learns, saves what it learned, and hands out tables.

Nothing is learned before the store was opened: until then the table on disk is active and the
ingresses keep their observations. If the store fails later, what was learned stays active.

The state is stored under the fit id of the table on disk. A new table on disk starts anew.
"""

import asyncio
import logging
import time
import uuid
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from deployments.actors import FEEDBACK, named_actor
from deployments.artifacts import exchanged_heads, served_table
from deployments.learning.state_store import Occasion, StoreAwayError, SupersededError
from deployments.learning.storage import Storage
from deployments.metrics import DriftMetrics
from deployments.rollout import read_by_learning, version_of
from router.learner import Learner
from schemas import (
    AppConfig,
    DecodeStats,
    DriftReport,
    Observation,
    RoutingTable,
    Snapshot,
    TableUpdate,
)
from schemas.observation import WARM_UP
from workers.portfolio import served_bundle

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
"""Between two attempts to open the store, or to write to it."""

STORE_SECONDS = 3.0
"""Between two writes of the state. Ingresses keep that many seconds of observations unacknowledged:
their buffer (`deployments.learning.link`) holds them up to 3,000 answers a second each."""

CALLER_SECONDS = 30.0
"""Time without a call after which nothing is kept for an ingress. After failures it pauses for up
to 12 s, and a call may take 5 (`deployments.actors`)."""

COUNTED = 200_000
"""Ids of observations to remember: what 20 ingresses keep while the store is away."""


@dataclass(frozen=True)
class Exchange:
    """Hold the actor's answer to an ingress.

    `table` is set only if the ingress asked for it and has another version; an update if it has one
    of the same fit. `taken`: whether the observations sent were learned from; they need not be sent
    again to this epoch. `acknowledged`: ids of observations of this ingress that have come into the
    store. `problem`: why nothing is stored at present.
    """

    table: RoutingTable | TableUpdate | None
    taken: bool
    acknowledged: frozenset[str]
    epoch: int
    problem: str | None
    drift: DriftReport


class Callers:
    """Tell new observations of ingresses from those that they send again, and keep what has to be
    acknowledged to them.

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


class Feedback:
    """Learn from observations; plain Python, so that a test can run it without Ray.

    owner: its name in the state's store, the same after a restart.
    """

    def __init__(self, config: AppConfig, owner: str | None = None) -> None:
        self._disk = served_table(config)
        self._exchanged = exchanged_heads(config, served_bundle(config))
        self._storage = Storage(config.feedback.state_uri, self._disk.fit_id, owner)
        self._learner = Learner(self._disk)
        self._metrics = DriftMetrics()
        self._learning = asyncio.Lock()
        self._called = self._written = time.monotonic()
        self._wait = 0.0
        self._callers = Callers()
        self._open()

    async def exchange(
        self,
        observations: Sequence[Observation],
        known: tuple[str, int] | None,
        ingress: str = "",
        leaving: bool = False,
    ) -> Exchange:
        """Learn from `observations` and return the table if the caller has another version.

        known: (fit id, version) of the caller's table; None if it wants no other now. ingress: the
        caller's own id. leaving: whether this is its last call, so that the state is stored at
        once.
        """
        self._called = time.monotonic()
        self._callers.called(ingress)
        taken = await self._learn(observations, ingress, at_once=leaving)
        whole = self._learner.table
        table: RoutingTable | TableUpdate | None = whole
        if known is None or (whole.fit_id, whole.version) == known:
            table = None
        elif whole.fit_id == known[0]:
            table = whole.update()
        return Exchange(
            table=table,
            taken=taken,
            acknowledged=self._callers.acknowledged(ingress),
            epoch=self._storage.epoch,
            problem=self._storage.problem,
            drift=self._learner.watch.report(),
        )

    async def warmed_up(self, replica: str, answers: Sequence[DecodeStats]) -> bool:
        """Learn the step times of a replica that has just started; its machine may differ from the
        table's.

        Return whether they are in the store; a replica repeats the call until they are.
        """
        self._called = time.monotonic()
        table = self._learner.table
        told = [f"{replica}:{stats.request_id}" for stats in answers]
        taken = await self._learn(
            [
                Observation(
                    stats=stats.model_copy(update={"request_id": name}),
                    cluster=-1,
                    fit_id=table.fit_id,
                    table_version=table.version,
                    policy=WARM_UP,
                    reason=WARM_UP,
                    propensity=1.0,
                    time=time.time(),
                )
                for name, stats in zip(told, answers, strict=True)
            ],
            replica,
            at_once=True,
        )
        return taken and not self._callers.unstored.intersection(told)

    async def follow_heads(self, versions: Mapping[str, int]) -> None:
        """Discount what was learned of methods whose head was exchanged.

        versions: by part, the active version. The call is repeated; each change counts once.
        """
        async with self._learning:
            if not self._storage.opened or self._storage.superseded:
                return
            if self._learner.follow_heads(versions, self._exchanged):
                logger.info("evidence of earlier heads is discounted; in force: %s", versions)
                await self._saved(self._learner)

    async def history(self) -> list[Snapshot]:
        """Return the states that `roll_back` can go to, the newest first. Raises StoreAwayError."""
        self._called = time.monotonic()
        async with self._learning:
            return await asyncio.to_thread(self._storage.snapshots)

    async def roll_back(self, number: int | None = None) -> Snapshot:
        """Activate a snapshot, by default the newest; the present state becomes a snapshot.

        Raises UnknownSnapshotError, SupersededError, StoreAwayError, and ValueError for a snapshot
        that does not fit.
        """
        self._called = time.monotonic()
        async with self._learning:
            there = await asyncio.to_thread(self._storage.snapshots)
            wanted = number if number is not None else max((s.number for s in there), default=0)
            state = await asyncio.to_thread(self._storage.snapshot, wanted)
            await self._replace(self._learner.back_to(state), "rollback")
            return next(snapshot for snapshot in there if snapshot.number == wanted)

    async def reset(self) -> None:
        """Forget what was learned; the present state becomes a snapshot.

        Raises SupersededError and StoreAwayError.
        """
        self._called = time.monotonic()
        async with self._learning:
            await self._replace(self._learner.anew(), "reset")

    async def _replace(self, learner: Learner, occasion: Occasion) -> None:
        """Activate another state once it is stored."""
        await self._keep(occasion)
        await self._save(learner)
        self._learner = learner
        logger.info("%s: version %d is in force", occasion, learner.table.version)

    async def _keep(self, occasion: Occasion) -> None:
        present = self._learner
        await asyncio.to_thread(self._storage.keep, present.state(), present.table, occasion)

    def idle_seconds(self) -> float:
        return time.monotonic() - self._called

    def _open(self) -> None:
        """Open the store and continue with its state, if that is possible now."""
        self._tried = time.monotonic()
        with suppress(StoreAwayError):
            state = self._storage.open()
            self._learner = _restored(self._disk, state)

    async def _opened(self) -> bool:
        if not self._storage.opened and time.monotonic() - self._tried >= RETRY_SECONDS:
            await asyncio.to_thread(self._open)
        return self._storage.opened

    async def _learn(
        self, observations: Sequence[Observation], ingress: str, *, at_once: bool
    ) -> bool:
        """Learn from observations and store the state if that is due; return whether they were
        taken."""
        if not observations and not self._is_due(at_once) and self._storage.opened:
            return True
        async with self._learning:
            if not await self._opened() or self._storage.superseded:
                return False
            self._callers.stored(self._storage.stored)  # a slow call may have ended since
            if observations:
                self._learner.observe(self._callers.new(ingress, observations))
                self._metrics.reported(self._learner.watch.report())
            if self._is_due(at_once):  # not if it was stored while this call waited
                if self._storage.snapshot_due:
                    try:
                        await self._keep("time")
                    except (SupersededError, StoreAwayError) as error:
                        logger.error("no snapshot kept: %s", error)
                stored = await self._saved(self._learner)
                self._written = time.monotonic()
                self._wait = STORE_SECONDS if stored else RETRY_SECONDS
            return not self._storage.superseded

    def _is_due(self, at_once: bool) -> bool:
        waits = bool(self._callers.unstored or self._storage.problem)
        return waits and (at_once or time.monotonic() - self._written >= self._wait)

    async def _saved(self, learner: Learner) -> bool:
        try:
            await self._save(learner)
        except (SupersededError, StoreAwayError):
            return False  # the storage has said so; the ingresses send it again
        return True

    async def _save(self, learner: Learner) -> None:
        learned = self._callers.unstored
        try:
            await asyncio.to_thread(self._storage.save, learner.state(), learned)
        finally:
            self._callers.stored(self._storage.stored)


def _restored(table: RoutingTable, state: dict[str, Any] | None) -> Learner:
    if state is None:
        return Learner(table)
    try:
        return Learner.restore(table, state)
    except ValueError as error:
        logger.warning("the saved state does not fit this table (%s): starting afresh", error)
        return Learner(table)


def feedback_actor(application: str, config: AppConfig) -> Any:
    """Return the handle of an application's feedback actor; create it if it does not exist.

    Ray restarts it with the same arguments, so it stays the owner that it was at first.
    """
    owner, version = uuid.uuid4().hex, version_of(read_by_learning(config))
    return named_actor(Feedback, FEEDBACK, application, version, config, owner)
