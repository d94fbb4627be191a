"""Methods that have no replica without requests for them (`min_replicas: 0`)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

logger = logging.getLogger(__name__)

Start = Callable[[], Awaitable[object]]
"""Any call of a method's deployment; Ray Serve starts a replica for a call that finds none."""


class Starting:
    """Start a method's first replica in the background, while other methods answer."""

    def __init__(self, starts: Mapping[str, Start]) -> None:
        self._starts = starts
        self._under_way: dict[str, asyncio.Task[None]] = {}

    def startable(self, ready: Collection[str]) -> frozenset[str]:
        """Return the methods without a replica that can start one; `ready` have one."""
        return frozenset(self._starts.keys() - set(ready))

    def start(self, method: str) -> None:
        """Ask for a replica unless one is starting already."""
        if method not in self._under_way:
            logger.info("starting a replica of %s, which is predicted to be the fastest", method)
            self._under_way[method] = asyncio.create_task(self._start(method))

    async def _start(self, method: str) -> None:
        try:
            await self._starts[method]()
        except Exception as error:  # whatever the cause, the next prompt asks again
            logger.warning("%s did not start: %s", method, error)
        finally:
            del self._under_way[method]
