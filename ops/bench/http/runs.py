"""The runs of `bench http`: requests to a service."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import httpx
import typer

from ops.harness.chat_client import Reply, RequestFailedError, stream_chat
from ops.harness.prompts import Prompt

Tick = Callable[[], None]
Found = TypeVar("Found")


@dataclass(frozen=True)
class Asked:
    """What a server is asked, how many requests are in flight, and the turns of a conversation."""

    prompts: Sequence[Prompt]
    parameters: dict[str, Any]
    concurrency: int
    turns: int = 1


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
        return await self._each(self.ask, concurrency, tick)

    async def conversations(
        self, turns: int, concurrency: int, tick: Tick
    ) -> tuple[list[list[Reply | None]], float]:
        """Return a conversation about every prompt (`_converse`) and the wall-clock seconds."""
        return await self._each(partial(self._converse, turns), concurrency, tick)

    async def _each(
        self, work: Callable[[Prompt], Awaitable[Found]], concurrency: int, tick: Tick
    ) -> tuple[list[Found], float]:
        places = asyncio.Semaphore(concurrency)

        async def placed(prompt: Prompt) -> Found:
            async with places:
                found = await work(prompt)
            tick()
            return found

        started = time.perf_counter()
        found = list(await asyncio.gather(*map(placed, self._prompts)))
        return found, time.perf_counter() - started

    async def _converse(self, turns: int, prompt: Prompt) -> list[Reply | None]:
        """Ask the prompt `turns` times in one conversation and return the answers.

        Of several turns, the last is asked once more in another scope, where nothing is cached. A
        failed request ends the conversation; its answer is None.
        """
        asked, replies = prompt, list[Reply | None]()
        while len(replies) < turns:
            replies.append(reply := await self.ask(asked))
            if reply is None:
                return replies
            if len(replies) < turns:
                answer = {"role": "assistant", "content": reply.text}
                asked = replace(asked, messages=(*asked.messages, answer, prompt.messages[-1]))
        if turns > 1:
            replies.append(await self.ask(asked, cache_salt=f"bench http {prompt.id}"))
        return replies

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
