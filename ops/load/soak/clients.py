"""Open-loop clients of three kinds: they read streams, leave them, or want the whole answer."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from itertools import cycle
from typing import Any

import httpx

from ops.harness.chat_client import Reply, RequestFailedError, stream_chat, whole_chat
from ops.harness.prompts import Prompt
from ops.load.arrivals import Floats

STREAMED, LEFT, WHOLE = "streamed", "left", "whole"
KINDS = (STREAMED, STREAMED, LEFT, STREAMED, WHOLE)
"""A client's kind by its number; a fifth of them leave."""
PIECES = 3
"""Pieces of text after which a client leaves."""
TEMPERATURES = (0.0, 0.8)


async def drive(
    server: httpx.AsyncClient,
    prompts: Sequence[Prompt],
    arrivals: Floats,
    parameters: dict[str, Any],
) -> Counter[str]:
    """Ask when each arrival [n] (seconds from now) is due, whatever became of the others; how many
    were streamed, left and whole, and how many failed, by the error's name."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    outcomes: Counter[str] = Counter()

    async def ask(number: int, prompt: Prompt) -> None:
        kind = KINDS[number % len(KINDS)]
        temperature = TEMPERATURES[number % len(TEMPERATURES)]
        body = {**parameters, "temperature": temperature}
        try:
            await _asked(server, prompt, kind, body)
            outcomes[kind] += 1
        except RequestFailedError as error:
            outcomes[str(error).partition(":")[0]] += 1
        except httpx.HTTPError as error:
            outcomes[type(error).__name__] += 1

    async with asyncio.TaskGroup() as asked:
        for number, (prompt, due) in enumerate(zip(cycle(prompts), arrivals, strict=False)):
            await asyncio.sleep(max(0.0, began + float(due) - loop.time()))
            asked.create_task(ask(number, prompt))
    return outcomes


async def _asked(
    server: httpx.AsyncClient, prompt: Prompt, kind: str, parameters: dict[str, Any]
) -> None:
    if kind == WHOLE:
        await whole_chat(server, prompt.messages, Reply(), **parameters)
        return
    pieces = 0
    async with aclosing(stream_chat(server, prompt.messages, Reply(), **parameters)) as stream:
        async for _ in stream:
            pieces += 1
            if kind == LEFT and pieces == PIECES:
                return
