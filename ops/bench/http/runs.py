"""The runs of `bench http`: requests to a service."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import typer

from ops.harness.chat_client import Reply, RequestFailedError, stream_chat
from ops.harness.prompts import Prompt

Tick = Callable[[], None]


@dataclass(frozen=True)
class Asked:
    """What a server is asked, and how many requests are in flight."""

    prompts: Sequence[Prompt]
    parameters: dict[str, Any]
    concurrency: int


class Questions:
    """Prompts as requests of one kind to one service."""

    def __init__(
        self, client: httpx.AsyncClient, prompts: Sequence[Prompt], parameters: dict[str, Any]
    ) -> None:
        self._client = client
        self._prompts = prompts
        self._parameters = parameters

    async def all(self, concurrency: int, tick: Tick) -> tuple[list[Reply | None], float]:
        """Return every prompt's streamed answer (None if it failed) and the wall-clock seconds."""
        places = asyncio.Semaphore(concurrency)

        async def ask(prompt: Prompt) -> Reply | None:
            async with places:
                reply = await self.ask(prompt)
            tick()
            return reply

        started = time.perf_counter()
        replies = list(await asyncio.gather(*map(ask, self._prompts)))
        return replies, time.perf_counter() - started

    async def ask(self, prompt: Prompt, **changed: Any) -> Reply | None:
        """Return one streamed answer; print a failure and return None."""
        reply, parameters = Reply(), self._parameters | changed
        try:
            async for _ in stream_chat(self._client, prompt.messages, reply, **parameters):
                pass
        except (RequestFailedError, httpx.HTTPError) as error:
            typer.echo(f"{prompt.id}: {error or type(error).__name__}", err=True)
            return None
        return reply
