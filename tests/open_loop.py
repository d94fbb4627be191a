"""Open-loop streamed requests, and what became of each."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Literal

import httpx
import numpy as np
from numpy.typing import NDArray

from ops.common.chat_client import DATA, event_lines
from ops.common.prompts import Prompt
from workers.http_clients import async_client

PATIENCE_SECONDS = 120.0
"""A client hears nothing for so long: then it gives its request up."""
REFUSALS = (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE)

Outcome = Literal["answered", "broken_off", "refused", "lost"]


@dataclass
class Request:
    """A request as its client sees it; times are in seconds on the event loop's clock.

    pieces: the times of its pieces of text. done: whether the stream ended properly. id: of its
    observation. error: the service's message, or the connection's failure.
    """

    due: float
    status: int | None = None
    retry_after: bool = False
    method: str | None = None
    id: str | None = None
    pieces: list[float] = field(default_factory=list)
    done: bool = False
    error: str | None = None
    ended: float | None = None

    @property
    def streaming(self) -> bool:
        """Whether its answer has begun and not ended."""
        return bool(self.pieces) and self.ended is None

    @property
    def outcome(self) -> Outcome:
        """What became of it, once it has ended."""
        if self.done:
            return "answered"
        if self.pieces:
            return "broken_off"
        return "refused" if self.status in REFUSALS and self.retry_after else "lost"


def client(url: str) -> httpx.AsyncClient:
    """Return a client that never retries and opens a new connection for each request.

    A kept connection whose other end has died would say nothing about the service.
    """
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    return async_client(url, timeout=PATIENCE_SECONDS, limits=limits)


@asynccontextmanager
async def under_load(
    server: httpx.AsyncClient,
    prompts: Sequence[Prompt],
    arrivals: NDArray[np.float64],
    parameters: dict[str, Any],
) -> AsyncIterator[list[Request]]:
    """The requests that are sent during the block, each when its arrival [n] (seconds from now) is
    due, whatever became of the others; after it all of them have ended."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    requests: list[Request] = []
    asked: list[asyncio.Task[None]] = []

    async def send() -> None:
        for prompt, arrival in zip(cycle(prompts), map(float, arrivals), strict=False):
            request = Request(due=began + arrival)
            await asyncio.sleep(request.due - loop.time())
            requests.append(request)
            body = {"messages": list(prompt.messages), "stream": True, **parameters}
            asked.append(asyncio.create_task(_ask(server, body, request)))

    sending = asyncio.create_task(send())
    try:
        yield requests
    finally:
        sending.cancel()
        await asyncio.gather(*asked)


async def _ask(server: httpx.AsyncClient, body: dict[str, Any], request: Request) -> None:
    now = asyncio.get_running_loop().time
    try:
        async with server.stream("POST", "/v1/chat/completions", json=body) as response:
            request.status = response.status_code
            request.retry_after = "retry-after" in response.headers
            request.method = response.headers.get("x-specadapt-method")
            if response.status_code != httpx.codes.OK:
                request.error = str(response.status_code)
                return
            async for line in event_lines(response):
                _take(line, request, now())
            if not request.done and request.error is None:
                request.error = "the stream ended too soon"
    except httpx.HTTPError as error:
        request.error = type(error).__name__
    finally:
        request.ended = now()


def _take(line: str, request: Request, now: float) -> None:
    if not line.startswith(DATA):
        return
    if line == f"{DATA}[DONE]":
        request.done = True
        return
    event = json.loads(line.removeprefix(DATA))
    if "error" in event:
        request.error = str(event["error"].get("code"))
        return
    request.id = str(event["id"]).removeprefix("chatcmpl-")
    if any(choice["delta"].get("content") for choice in event["choices"]):
        request.pieces.append(now)
