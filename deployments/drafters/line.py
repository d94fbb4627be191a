"""An ingress's connection to the drafters' actor: finished answers go out in batches."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from deployments.actors import ActorAwayError, ActorLine, forever
from deployments.metrics import Metrics
from schemas import Sample

logger = logging.getLogger(__name__)

SEND_SECONDS = 5.0
"""Interval of batches. Each is a file in the store until the next tidying."""
CALL_SECONDS = 30.0
"""Longest call: the first one starts the actor, and the store may be slow."""
MOST_TOKENS = 500_000
BATCH_TOKENS = 50_000
"""Tokens of prompts and answers that wait, and that go in one call. A small answer counts as more
(`Sample.room`)."""


class Actor(Protocol):
    """Define what the line calls: `DraftersActor.take`, over Ray."""

    def take(self, batch: Sequence[Sample]) -> Awaitable[None]: ...


class SampleLine:
    """Hold answers until the actor has them. Beyond MOST_TOKENS further ones are dropped."""

    def __init__(self, connect: Callable[[], Awaitable[Actor]], metrics: Metrics) -> None:
        self._line = ActorLine(connect)
        self._metrics = metrics
        self._waiting: deque[Sample] = deque()
        self._tokens = 0
        self._away = False

    def add(self, sample: Sample) -> None:
        """Queue an answer without waiting."""
        if self._tokens + sample.room > MOST_TOKENS:
            self._metrics.samples.inc(tags={"outcome": "dropped"})
            return
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
        """Send one batch, which may be empty: the actor ends without calls.

        If the actor is away, the batch waits for the next call.
        """
        batch = self._batch()
        try:
            await self._line.ask(lambda actor: actor.take(batch), CALL_SECONDS)
        except ActorAwayError as error:
            if not self._away:
                logger.warning("the drafters' actor is away, answers wait for it: %s", error)
            self._away = True
            return
        self._away = False
        for _ in batch:
            self._tokens -= self._waiting.popleft().room
        if batch:
            self._metrics.samples.inc(len(batch), tags={"outcome": "sent"})

    async def _send_forever(self) -> None:
        await forever(self.send, lambda _: self._line.pause(SEND_SECONDS))

    def _batch(self) -> list[Sample]:
        batch, tokens = list[Sample](), 0
        for sample in self._waiting:
            tokens += sample.room
            if batch and tokens > BATCH_TOKENS:
                break
            batch.append(sample)
        return batch
