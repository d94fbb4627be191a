"""Methods that have no replica without requests for them (`min_replicas: 0`)."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping

logger = logging.getLogger(__name__)

Start = Callable[[], Awaitable[object]]
"""Any call of a method's deployment; Ray Serve starts a replica for a call that finds none."""


START_SECONDS = 30.0
"""How long a start usually takes: a process starts and loads a model."""


class Starting:
    """Start a method's first replica in the background, while other methods answer."""

    def __init__(
        self, starts: Mapping[str, Start], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._starts = starts
        self._clock = clock
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._since: dict[str, float] = {}

    def startable(self, ready: Collection[str]) -> dict[str, float]:
        """Return the methods without a replica that can start one, and in how many seconds.

        `ready` have a replica, so their starts are over. A start that takes longer than usual may
        have no node with room for it. It is expected to take as long again.
        """
        for method in self._under_way.keys() & set(ready):
            self._under_way.pop(method).cancel()
            del self._since[method]
        now = self._clock()
        return {
            method: max(START_SECONDS, now - self._since.get(method, now))
            for method in self._starts
            if method not in ready
        }

    def start(self, method: str) -> None:
        """Ask for a replica unless one is starting already."""
        if method not in self._under_way:
            logger.info("starting a replica of %s", method)
            self._since[method] = self._clock()
            self._under_way[method] = asyncio.create_task(self._start(method))

    async def _start(self, method: str) -> None:
        try:
            await self._starts[method]()
            await asyncio.sleep(START_SECONDS)  # it is ready when it has warmed up
        except Exception as error:  # whatever the cause, the next prompt asks again
            logger.warning("%s did not start: %s", method, error)
        finally:
            if self._under_way.get(method) is asyncio.current_task():
                del self._under_way[method], self._since[method]
