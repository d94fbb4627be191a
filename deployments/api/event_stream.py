"""Server-sent events that never leave a client without a byte for long."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi.responses import StreamingResponse
from starlette.types import Message, Send

from deployments.api.answering import headers_of, told_of
from deployments.errors import ApiError
from deployments.request.answered import Answer

Event = tuple[str, dict[str, Any]]
"""A server-sent event: its name and its data."""
FIRST_SECONDS = 5.0
"""Time after which a stream begins without its first chunk, and so without the headers that name
the method."""
LATER_SECONDS = 15.0
"""Silence after which a stream that has begun says that it goes on."""
COMMENT = ": waiting\n\n"
"""What says so, unless the API has an event for it. Clients skip comments."""


@dataclass(frozen=True)
class Begun:
    """Answers that have their first chunks, and how they are written as events.

    events: takes the fields that the first event has in addition.
    """

    answers: Sequence[Answer]
    events: Callable[[Mapping[str, Any]], AsyncGenerator[str, None]]


class EventStream(StreamingResponse):
    """Stream server-sent events, and `ping` where there are none for LATER_SECONDS. The generator,
    and so the work, ends with the response."""

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[str, None],
        beginning: "asyncio.Future[Begun]",
        headers: Mapping[str, str],
        ping: str,
    ) -> None:
        # Proxies in between must not gather the stream up.
        still = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(events, headers={**headers, **still})
        self._events, self._beginning, self._ping = events, beginning, ping.encode()

    async def stream_response(self, send: Send) -> None:
        line = _Line(send)
        pinging = asyncio.create_task(line.ping(self._ping))
        try:
            await super().stream_response(line.send)
        finally:
            pinging.cancel()
            await asyncio.gather(pinging, return_exceptions=True)
            await self._events.aclose()
            await _ended(self._beginning)


async def streamed(
    beginning: Awaitable[Begun], failed: Callable[[ApiError], str], ping: str = COMMENT
) -> EventStream:
    """Return the response of a stream once its responses have their first chunks, or after
    FIRST_SECONDS.

    failed: writes an error as events. Raises ApiError if the responses fail before; later the error
    is part of the stream.
    """
    waiting = asyncio.ensure_future(beginning)
    try:
        await asyncio.wait([waiting], timeout=FIRST_SECONDS)
    except asyncio.CancelledError:
        await _ended(waiting)
        raise
    if not waiting.done():
        return EventStream(_late(waiting, failed, ping), waiting, {}, ping)
    begun = waiting.result()
    return EventStream(begun.events({}), waiting, headers_of(begun.answers[0]), ping)


async def _late(
    waiting: "asyncio.Future[Begun]", failed: Callable[[ApiError], str], ping: str
) -> AsyncGenerator[str, None]:
    """Yield a ping at once, and the events when there are answers."""
    yield ping
    try:
        begun = await waiting
    except ApiError as error:
        yield failed(error)
        return
    events = begun.events({"specadapt": told_of(begun.answers[0])})
    try:
        async for piece in events:
            yield piece
    finally:
        await events.aclose()


async def _ended(beginning: "asyncio.Future[Begun]") -> None:
    """Give up answers, whether or not they have begun."""
    if not beginning.done():
        beginning.cancel()
        await asyncio.wait([beginning])
    if not beginning.cancelled() and beginning.exception() is None:
        for answer in beginning.result().answers:
            await answer.close()


class _Line:
    """Send a response's messages one at a time, and pings between them."""

    def __init__(self, send: Send) -> None:
        self._send, self._turn = send, asyncio.Lock()
        self._clock = asyncio.get_running_loop().time
        self._open, self._last = False, self._clock()

    async def send(self, message: Message) -> None:
        async with self._turn:
            await self._send(message)
            self._open, self._last = message.get("more_body", True), self._clock()

    async def ping(self, body: bytes) -> None:
        """Ping between the headers and the last message, until this is cancelled."""
        while True:
            await asyncio.sleep(self._last + LATER_SECONDS - self._clock())
            async with self._turn:
                if self._clock() - self._last < LATER_SECONDS:
                    continue
                if self._open:
                    part = {"type": "http.response.body", "body": body, "more_body": True}
                    await self._send(part)
                self._last = self._clock()
