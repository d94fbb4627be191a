"""The runs of `bench balance`: open-loop load on a real service whose replicas are watched."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import httpx

from ops.balance.report import Sample
from ops.http.runs import Questions
from ops.load.arrivals import Floats
from ops.measure.prompts import Prompt
from ops.service.client import Reply

WATCH_SECONDS = 0.2
"""Replicas report every quarter of a second."""

Tick = Callable[[], None]


async def open_loop(
    questions: Questions, prompts: Sequence[Prompt], arrivals: Floats, tick: Tick
) -> list[Reply | None]:
    """The answers to prompts asked at `arrivals` [n] (seconds from now) whatever is under way; the
    prompts are repeated where they are fewer."""
    loop = asyncio.get_running_loop()
    start = loop.time()

    async def ask(prompt: Prompt, arrival: float) -> Reply | None:
        await asyncio.sleep(start + arrival - loop.time())
        reply = await questions.ask(prompt, streamed=True)
        tick()
        return reply

    asked = zip(itertools.cycle(prompts), map(float, arrivals), strict=False)
    return list(await asyncio.gather(*(ask(*one) for one in asked)))


@contextlib.asynccontextmanager
async def watched(client: httpx.AsyncClient) -> AsyncIterator[list[Sample]]:
    """The replicas' reports during the block."""
    samples: list[Sample] = []

    async def watch() -> None:
        while True:
            for load in await reports(client):
                samples.append(Sample(load["replica"], load["time"], load["outstanding_tokens"]))
            await asyncio.sleep(WATCH_SECONDS)

    watching = asyncio.create_task(watch())
    try:
        yield samples
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def reports(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    """The last report of every replica, as the service has it."""
    response = await client.get("/v1/routing")
    response.raise_for_status()
    return list(response.json()["loads"])
