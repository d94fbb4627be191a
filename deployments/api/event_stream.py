"""Replies: one JSON body, or server-sent events that never leave a client without a byte for
long."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import pydantic_core
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Message, Send

from deployments.api.answering import headers_of, told_of
from deployments.errors import ApiError
from deployments.request.answered import Answer, interleaved
from schemas import DecodeChunk

Event = tuple[str, dict[str, Any]]
"""A server-sent event: its name and its data."""
FIRST_SECONDS = 5.0
"""Time after which a stream begins without its first chunk, and so without the headers that name
the method."""
LATER_SECONDS = 15.0
"""Silence after which a stream that has begun says that it goes on."""
COMMENT = ": waiting\n\n"
"""What says so, unless the API has an event for it. Clients skip comments."""


class Reply(ABC):
    """Write the responses of one request. answers: those that have their first chunks."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.answers = answers

    @abstractmethod
    async def whole(self) -> Mapping[str, Any]:
        """Return the response body without streaming. Raises ApiError if a response breaks off."""

    @abstractmethod
    def begin(self, told: Mapping[str, Any], first: DecodeChunk | None, /) -> Iterable[str]:
        """Return the events before those of the first chunk, None if there is no chunk. told:
        fields that the first event has in addition."""

    @abstractmethod
    def of_chunk(self, index: int, chunk: DecodeChunk, /) -> Iterable[str]:
        """Return the events of a chunk of the response with this index."""

    def ending(self) -> Iterable[str]:
        """Return the events after all responses have ended."""
        return ()

    @abstractmethod
    def failed(self, error: ApiError) -> Iterable[str]:
        """Return the events of a response that breaks off."""

    async def events(self, told: Mapping[str, Any]) -> AsyncGenerator[str, None]:
        """Yield server-sent events, those of chunks that arrive together as one piece.

        The first piece has the events that begin the responses, the last one those that end them. A
        response that breaks off ends with an error event instead. told: as in `begin`.
        """
        said, begun, left = list[str](), False, len(self.answers)
        try:
            async with aclosing(interleaved(self.answers)) as arriving:
                async for arrived in arriving:
                    for index, chunk in arrived:
                        if not begun:
                            begun = True
                            said += self.begin(told, chunk)
                        said += self.of_chunk(index, chunk)
                        left -= chunk.finish_reason is not None
                    if not left:
                        said += self.ending()
                    if said:
                        yield "".join(said)
                        said = []
        except ApiError as error:
            if not begun:
                said = [*self.begin(told, None)]
            if left:
                yield "".join([*said, *self.failed(error)])
        finally:
            for answer in self.answers:
                await answer.close()


class WholeResponse(JSONResponse):
    """Write a response's body five times as fast as `json` does: log probabilities of several
    choices have many megabytes, and no other response goes on meanwhile."""

    def render(self, content: Any) -> bytes:
        return pydantic_core.to_json(content)


class EventStream(StreamingResponse):
    """Stream server-sent events, and `ping` where there are none for LATER_SECONDS. The generator,
    and so the work, ends with the response."""

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[str, None],
        beginning: "asyncio.Future[Reply]",
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


async def responded(
    replying: Awaitable[Reply],
    failed: Callable[[ApiError], str],
    *,
    stream: bool,
    ping: str = COMMENT,
) -> Response:
    """Return the response with a reply; of a stream once the reply has begun, or after
    FIRST_SECONDS.

    failed: writes an error as events. Raises ApiError if the responses fail before; later the error
    is part of the stream.
    """
    if not stream:
        reply = await replying
        return WholeResponse(await reply.whole(), headers=headers_of(reply.answers[0]))
    waiting = asyncio.ensure_future(replying)
    try:
        await asyncio.wait([waiting], timeout=FIRST_SECONDS)
    except asyncio.CancelledError:
        await _ended(waiting)
        raise
    if not waiting.done():
        return EventStream(_late(waiting, failed, ping), waiting, {}, ping)
    reply = waiting.result()
    return EventStream(reply.events({}), waiting, headers_of(reply.answers[0]), ping)


async def _late(
    waiting: "asyncio.Future[Reply]", failed: Callable[[ApiError], str], ping: str
) -> AsyncGenerator[str, None]:
    """Yield a ping at once, and the events when there are answers."""
    yield ping
    try:
        reply = await waiting
    except ApiError as error:
        yield failed(error)
        return
    async with aclosing(reply.events({"specadapt": told_of(reply.answers[0])})) as events:
        async for piece in events:
            yield piece


async def _ended(beginning: "asyncio.Future[Reply]") -> None:
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
