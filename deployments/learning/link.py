"""An ingress's connection to the feedback actor: observations go out, tables come in.

The ingress never waits for the actor. While the actor or its store is away, the last table stays in
force and a bounded number of observations wait.
"""

import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import TypeVar

from deployments.actors import ActorAwayError, ActorLine, forever
from deployments.errors import ApiError, unavailable
from deployments.learning.feedback import Exchange, Feedback
from deployments.loads import IDLE_SECONDS, LoadsLine
from deployments.metrics import Metrics
from schemas import DriftReport, LoadReport, Observation, RoutingTable, Snapshot, TableUpdate

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

_BATCH = 512
_CAPACITY = 10_000

FLUSH_SECONDS = 0.5
"""Seconds between two batches of observations to the actor."""
TABLE_SECONDS = 1.0
"""Least seconds between two versions of the table. A version of a thousand clusters is 0.4 MB."""


class FeedbackLink:
    """Hold the active table, the unacknowledged observations and the replicas' loads."""

    def __init__(
        self,
        table: RoutingTable,
        connect: Callable[[], Awaitable[Feedback]],
        loads: LoadsLine,
        metrics: Metrics,
    ) -> None:
        self.table = table
        self.connected = False
        self.problem: str | None = "the feedback actor was not heard from yet"
        """Why nothing is learned and stored at present; nothing is explored meanwhile."""
        self.epoch = 0
        self.dropped = 0
        self.drift: DriftReport | None = None
        self._id = uuid.uuid4().hex
        self._exchanged = time.monotonic()
        self._metrics = metrics
        self._line = ActorLine(connect)
        self._loads = loads
        self._waiting: OrderedDict[str, Observation] = OrderedDict()
        self._taken: set[str] = set()
        """Those among them that the actor has learned from and not stored."""
        self._updated = float("-inf")

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def age_seconds(self) -> float:
        """Return the seconds since the feedback actor last confirmed the table, or since the
        start."""
        return time.monotonic() - self._exchanged

    @property
    def loads(self) -> Sequence[LoadReport]:
        return self._loads.reports

    def observe(self, observation: Observation) -> None:
        """Queue an observation; drop the oldest if too many wait."""
        self._waiting[observation.observation_id] = observation
        while len(self._waiting) > _CAPACITY:
            dropped, _ = self._waiting.popitem(last=False)
            self._taken.discard(dropped)
            self.dropped += 1

    async def exchange(self, everything: bool = False) -> None:
        """Exchange once; a failure is logged and changes nothing.

        everything: send all observations that wait, not only the first ones.
        """
        unsent = {name: o for name, o in self._waiting.items() if name not in self._taken}
        batch = unsent if everything else dict(islice(unsent.items(), _BATCH))
        wants = time.monotonic() - self._updated >= TABLE_SECONDS
        known = (self.table.fit_id, self.table.version) if wants else None
        sent = list(batch.values())
        try:
            reply = await self._line.ask(
                lambda actor: actor.exchange(sent, known, self._id, everything)
            )
        except ActorAwayError as error:
            if self.connected:
                logger.warning("feedback actor away, keeping the last table: %s", error)
            self.connected = False
            self._taken.clear()
            self._found(f"the feedback actor does not answer: {error}")
            return
        self._take(batch, reply)
        self._metrics.observations_waiting.set(len(self._waiting))

    async def history(self) -> list[Snapshot]:
        """Return the snapshots. Raises ApiError 503 while the actor is away."""
        return await self._asked(lambda actor: actor.history())

    async def roll_back(self, number: int | None) -> Snapshot:
        """Activate a snapshot. Raises ApiError 404 if it does not exist, 503 while the actor is
        away."""
        return await self._asked(lambda actor: actor.roll_back(number))

    async def reset(self) -> None:
        """Forget what was learned. Raises ApiError 503 while the actor is away."""
        await self._asked(lambda actor: actor.reset())

    async def _asked(self, call: Callable[[Feedback], Awaitable[Result]]) -> Result:
        try:
            return await self._line.ask(call)
        except ActorAwayError as error:
            if isinstance(error.__cause__, LookupError):
                raise ApiError(404, str(error), param="snapshot", code="not_found") from error
            raise unavailable(f"the feedback actor: {error}") from error

    async def exchange_forever(self) -> None:
        def pause(_: float) -> float:
            return self._line.pause(FLUSH_SECONDS if self._waiting else IDLE_SECONDS)

        await forever(self.exchange, pause)

    def _take(self, batch: dict[str, Observation], reply: Exchange) -> None:
        if reply.epoch != self.epoch:
            self._taken.clear()  # another actor, which has not stored what the last one took
        if reply.taken:
            self._taken |= batch.keys()
        for observation_id in reply.acknowledged:
            self._waiting.pop(observation_id, None)
        self._taken &= self._waiting.keys()
        if reply.table is not None:
            table = reply.table
            if isinstance(table, TableUpdate):
                table = self.table.updated(table)
            self.table, self._updated = table, time.monotonic()
        self._metrics.table_version.set(self.table.version)
        self.epoch = reply.epoch
        self.drift = reply.drift
        self.connected = True
        self._found(reply.problem)
        self._exchanged = time.monotonic()

    def _found(self, problem: str | None) -> None:
        self.problem = problem
        self._metrics.learning.set(0.0 if problem else 1.0)
