"""An ingress's line to the feedback actor: observations out, tables and loads in.

The ingress never waits for it: while the actor is away the last table and loads stay in force
and observations wait, a bounded number of them.
"""

import asyncio
import logging
import random
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import Protocol, TypeVar

import ray

from deployments.errors import ApiError, unavailable
from deployments.learning.feedback import Exchange
from deployments.metrics import Metrics
from schemas import (
    TEMPERATURE_BANDS,
    DriftReport,
    LoadReport,
    Observation,
    ObservedReport,
    RouterConfig,
    RoutingTable,
    Snapshot,
)

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

_BATCH = 512
_CAPACITY = 10_000
_TIMEOUT_SECONDS = 5.0


class Actor(Protocol):
    """What the link calls: `Feedback.exchange`, over Ray or directly."""

    def exchange(
        self,
        observations: Sequence[Observation],
        known: tuple[str, int],
        settings: RouterConfig | None,
    ) -> Awaitable[Exchange]: ...

    def history(self) -> Awaitable[list[Snapshot]]: ...

    def roll_back(self, number: int | None) -> Awaitable[Snapshot]: ...

    def reset(self) -> Awaitable[None]: ...


class FeedbackLink:
    """The table in force, the replicas' loads and the observations not yet acknowledged."""

    def __init__(
        self,
        table: RoutingTable,
        connect: Callable[[], Awaitable[Actor]],
        flush_seconds: float,
        poll_seconds: float,
        metrics: Metrics,
    ) -> None:
        self.table = table
        self.settings: RouterConfig | None = None
        """What is to be learned by from now on, where that has changed."""
        self.loads: tuple[LoadReport, ...] = ()
        self.connected = False
        self.epoch = 0
        self.dropped = 0
        self.drift: DriftReport | None = None
        self.observed: ObservedReport | None = None
        self._born = time.monotonic()
        self._exchanged: float | None = None
        self._metrics = metrics
        self._connect = connect
        self._actor: Actor | None = None
        self._flush_seconds = flush_seconds
        self._poll_seconds = poll_seconds
        self._flushed = 0.0
        self._waiting: OrderedDict[str, Observation] = OrderedDict()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def age_seconds(self) -> float:
        """Since the feedback actor last confirmed the table, or else since the start."""
        return time.monotonic() - (self._born if self._exchanged is None else self._exchanged)

    def observe(self, observation: Observation) -> None:
        """Queue an observation; the oldest is dropped where too many wait."""
        self._waiting[observation.observation_id] = observation
        while len(self._waiting) > _CAPACITY:
            self._waiting.popitem(last=False)
            self.dropped += 1

    @asynccontextmanager
    async def exchanging(self) -> AsyncIterator[None]:
        """Exchange beside the block; at its end what still waits is sent."""
        going_on = asyncio.create_task(self._exchange_forever())
        try:
            yield
        finally:
            going_on.cancel()
            await self.exchange(everything=True)

    async def exchange(self, everything: bool = False) -> None:
        """One exchange; a failure is logged and leaves everything as it was.

        Observations go along where their flush is due, or all of them with `everything`.
        """
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                if self._actor is None:
                    self._actor = await self._connect()
                batch = dict(self._waiting) if everything else self._due()
                reply = await self._actor.exchange(
                    list(batch.values()), (self.table.fit_id, self.table.version), self.settings
                )
        except (ray.exceptions.RayError, TimeoutError, ValueError, OSError) as error:
            if self.connected:
                logger.warning("feedback actor away, going on with the last table: %s", error)
            self.connected, self._actor = False, None
            return
        self._take(batch, reply)
        self._metrics.observations_waiting.set(len(self._waiting))

    async def history(self) -> list[Snapshot]:
        """See Feedback. Raises ApiError 503 while the actor is away."""
        return await self._asked(lambda actor: actor.history())

    async def roll_back(self, number: int | None) -> Snapshot:
        """See Feedback. Raises ApiError 404 for a snapshot that is not there, 503 while the actor
        is away."""
        return await self._asked(lambda actor: actor.roll_back(number))

    async def reset(self) -> None:
        """See Feedback. Raises ApiError 503 while the actor is away."""
        await self._asked(lambda actor: actor.reset())

    async def _asked(self, call: Callable[[Actor], Awaitable[Result]]) -> Result:
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                return await call(self._actor or await self._connect())
        except LookupError as error:
            raise ApiError(404, str(error), param="snapshot", code="not_found") from error
        except (ray.exceptions.RayError, TimeoutError, ValueError, OSError, RuntimeError) as error:
            raise unavailable(f"the feedback actor: {error or type(error).__name__}") from error

    async def _exchange_forever(self) -> None:
        while True:
            await self.exchange()
            # Jittered, so that several ingresses do not call in step.
            await asyncio.sleep(self._poll_seconds * random.uniform(0.8, 1.2))

    def _due(self) -> dict[str, Observation]:
        now = time.monotonic()
        if now - self._flushed < self._flush_seconds:
            return {}
        self._flushed = now
        return dict(islice(self._waiting.items(), _BATCH))

    def _take(self, batch: dict[str, Observation], reply: Exchange) -> None:
        if reply.acknowledged:
            for observation_id in batch:
                self._waiting.pop(observation_id, None)
        if reply.table is not None:
            self._count_changes(reply.table)
            self.table = reply.table
        self._metrics.table_version.set(self.table.version)
        # A young actor has not heard from every replica: absence says nothing yet.
        if reply.settled or not self.loads:
            self.loads = reply.loads
        else:
            fresh = {load.replica: load for load in reply.loads}
            known = {load.replica: load for load in self.loads}
            self.loads = tuple((known | fresh).values())
        self.epoch = reply.epoch
        self.drift, self.observed = reply.drift, reply.observed
        self.connected = True
        self._exchanged = time.monotonic()

    def _count_changes(self, table: RoutingTable) -> None:
        # The first table replaces the one from disk: what changed before counts elsewhere. A
        # refit's clusters are others, whose favourites nothing has changed to.
        if self._exchanged is None or table.fit_id != self.table.fit_id:
            return
        rows = zip(self.table.assignment, table.assignment, strict=True)
        for cluster, (before, after) in enumerate(rows):
            for band, old, new in zip(TEMPERATURE_BANDS, before, after, strict=True):
                if new != old:
                    tags = {"method": new, "cluster": str(cluster), "temperature_band": band}
                    self._metrics.favourite_changes.inc(tags=tags)
