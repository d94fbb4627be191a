"""An ingress's connection to the load board."""

import logging
from collections.abc import Awaitable, Callable

from deployments.actors import ActorAwayError, ActorLine, forever
from deployments.loads.board import LoadBoard
from schemas import LoadReport

logger = logging.getLogger(__name__)


class LoadsLine:
    """Hold the replicas' last reports, which stay in force while the board is away."""

    def __init__(self, connect: Callable[[], Awaitable[LoadBoard]], poll_seconds: float) -> None:
        self.reports: tuple[LoadReport, ...] = ()
        self._line = ActorLine(connect)
        self._poll_seconds = poll_seconds
        self._away = False

    async def fetch(self) -> None:
        """Fetch the reports once; a failure changes nothing."""
        try:
            loads = await self._line.ask(lambda board: board.loads())
        except ActorAwayError as error:
            if not self._away:
                logger.warning("load board away, keeping the last reports: %s", error)
            self._away = True
            return
        self._away = False
        # A young board has not heard from every replica: absence says nothing yet.
        kept = () if loads.settled else self.reports
        fresh = {load.replica: load for load in loads.reports}
        self.reports = tuple(({load.replica: load for load in kept} | fresh).values())

    async def fetch_forever(self) -> None:
        """Fetch the reports every `poll_seconds`."""
        await forever(self.fetch, lambda _: self._line.pause(self._poll_seconds))
