"""An ingress's connection to the head training actor: finished answers go out in batches."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from deployments.actors import ActorAwayError, ActorLine, forever
from schemas import Sample

logger = logging.getLogger(__name__)

SEND_SECONDS = 5.0
"""Interval of batches. Each is a file in the store until the next tidying."""
CALL_SECONDS = 30.0
"""Longest call: the first one starts the actor, and the store may be slow."""
MOST_TOKENS = 500_000
"""Tokens of prompts and answers that wait. A small answer counts as more (`Sample.room`)."""


class SampleLine:
    """Hold answers until the actor has them. Beyond MOST_TOKENS further ones are dropped.

    connect: finds or creates the actor, whose `take` gets the batches.
    """

    def __init__(self, connect: Callable[[], Awaitable[Any]]) -> None:
        self._line = ActorLine(connect)
        self._waiting: list[Sample] = []
        self._tokens = 0
        self._away = False

    def add(self, sample: Sample) -> None:
        """Queue an answer without waiting."""
        if self._tokens + sample.room <= MOST_TOKENS:
            self._waiting.append(sample)
            self._tokens += sample.room

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """Send batches during the block, and one more at its end."""
        going_on = asyncio.create_task(self._send_forever())
        try:
            yield
        finally:
            going_on.cancel()
            await self.send()

    async def send(self) -> None:
        """Send what waits, which may be nothing: the actor ends without calls.

        If the actor is away, it waits for the next call.
        """
        batch = list(self._waiting)
        try:
            await self._line.ask(lambda actor: actor.take(batch), CALL_SECONDS)
        except ActorAwayError as error:
            if not self._away:
                logger.warning("head training is away, answers wait for it: %s", error)
            self._away = True
            return
        self._away = False
        del self._waiting[: len(batch)]
        self._tokens -= sum(sample.room for sample in batch)

    async def _send_forever(self) -> None:
        await forever(self.send, lambda _: self._line.pause(SEND_SECONDS))
