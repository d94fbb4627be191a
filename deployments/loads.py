"""The board to which replicas report their loads, and an ingress's connection to it.

It is an actor of its own: readiness and balancing need the reports and must not fail with learning.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from deployments.actors import (
    LOADS,
    ActorAwayError,
    ActorLine,
    forever,
    named_actor,
)
from schemas import AppConfig, LoadReport

logger = logging.getLogger(__name__)

REPORT_SECONDS = 0.25
"""Least seconds between two reports of a replica, and between two polls of an ingress."""
IDLE_SECONDS = 1.0
"""The same while nothing changes."""
EXPIRY_SECONDS = 12 * REPORT_SECONDS
MOST_INTERVALS = 4
"""Longest pause after failed reports, in intervals of reports. Every replica has to report to a new
board before the board counts those that have not as lost."""


@dataclass(frozen=True)
class Loads:
    """Hold each live replica's last report; `settled` is false while replicas may not have reported
    yet. number: of the last change."""

    reports: tuple[LoadReport, ...]
    settled: bool
    number: int


class LoadBoard:
    """Keep the last report of each replica; reports that are not renewed expire."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, LoadReport]] = {}
        self._changes, self._changed = 0, asyncio.Event()
        self._born = self._called = time.monotonic()

    async def report(self, load: LoadReport) -> None:
        """Replace the last report of a replica."""
        self._called = time.monotonic()
        _, before = self._last.get(load.replica, (0.0, None))
        if before is None or differs(load, before):
            self._changes += 1
            self._changed.set()
            self._changed = asyncio.Event()
        # By the time of arrival on this machine's clock: replicas' clocks may differ.
        self._last[load.replica] = (self._called, load)

    async def loads(self, seen: int | None = None) -> Loads:
        """Return the reports that have not expired.

        seen: the number that the caller had last. If nothing has changed since, wait for a change,
        but at most IDLE_SECONDS.
        """
        if seen == self._changes:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), IDLE_SECONDS)
        self._called = now = time.monotonic()
        horizon = now - EXPIRY_SECONDS
        self._last = {r: told for r, told in self._last.items() if told[0] >= horizon}
        return Loads(
            reports=tuple(load for _, load in self._last.values()),
            settled=self._born < horizon,
            number=self._changes,
        )

    def idle_seconds(self) -> float:
        """Return the seconds since the last call."""
        return time.monotonic() - self._called


def differs(one: LoadReport, other: LoadReport) -> bool:
    """Return whether two reports say anything else than that their replica lives."""
    return one != other.model_copy(update={"time": one.time})


def load_board(application: str, _config: AppConfig) -> Any:
    """Return the handle of an application's board; create it if it does not exist."""
    return named_actor(LoadBoard, LOADS, application, f"{REPORT_SECONDS:g}")


class LoadsLine:
    """Hold the replicas' last reports, which stay active while the board is away."""

    def __init__(self, connect: Callable[[], Awaitable[LoadBoard]]) -> None:
        self.reports: tuple[LoadReport, ...] = ()
        self._line = ActorLine(connect)
        self._seen: int | None = None

    async def fetch(self) -> None:
        """Fetch the reports once; a failure changes nothing."""
        try:
            loads = await self._line.ask(lambda board: board.loads(self._seen))
        except ActorAwayError as error:
            if self._line.failures == 1:
                logger.warning("load board away, keeping the last reports: %s", error)
            return
        self._seen = loads.number
        # A young board has not heard from every replica: absence says nothing yet.
        kept = () if loads.settled else self.reports
        fresh = {load.replica: load for load in loads.reports}
        self.reports = tuple(({load.replica: load for load in kept} | fresh).values())

    async def fetch_forever(self) -> None:
        await forever(self.fetch, lambda _: self._line.pause(REPORT_SECONDS))
