"""Limits on how many requests an ingress works on, and how many send their bodies or wait."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.errors import ApiError, overloaded

DAWDLING_SECONDS = 1.0
"""A body that takes longer loses its place to another request once every place is taken."""
BODILESS = ("GET", "HEAD", "OPTIONS")
"""Methods whose requests have no body here."""
QUEUED_REQUESTS = 256
"""Requests in addition to those that are worked on; more are refused with 429."""
BODY_SECONDS = 30.0
"""Time for a request's body; slower ones are refused with 408."""
WAITING_SECONDS = 10.0
"""A request waits at most this long for a slot before it is refused."""


class Slots:
    """ASGI middleware that admits `ongoing` requests with a complete body and `queued` others.

    A request takes a slot once its last byte has arrived, so that slow clients hold up no others.
    Requests without a body, such as `/health`, take none.
    """

    def __init__(self, app: ASGIApp, ongoing: int, queued: int) -> None:
        self._app = app
        self.free = asyncio.Semaphore(ongoing)
        self.most = ongoing + queued
        self.inside: dict[Arrival, None] = {}
        """Requests with a place; those in `reading` still send their bodies, the oldest first."""
        self.reading: dict[Arrival, None] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in BODILESS:
            await self._app(scope, receive, send)
            return
        arrival = Arrival(self, receive)
        try:
            await self._app(scope, arrival, send)
        finally:
            arrival.end()


class Arrival:
    """Receive one request's body and hold its slot: an ASGI `receive`."""

    def __init__(self, slots: Slots, receive: Receive) -> None:
        self._slots, self._receive = slots, receive
        self._clock = asyncio.get_running_loop().time
        self._began: float | None = None
        self._timer: asyncio.Timeout | None = None
        self._here = self._holds = self._dropped = False

    async def __call__(self) -> Message:
        """Return the next message; the last one of the body once there is a slot.

        Raises ApiError: 408 if the body does not arrive in time, 429 if every place is taken.
        """
        if self._here:
            return await self._receive()
        if self._began is None:
            self._enter()
            self._began = self._clock()
        message = await self._part(self._began)
        if not message.get("more_body", False):
            self._here = True
            await self._take()
        return message

    def end(self) -> None:
        """Give the slot and the place back."""
        if self._holds:
            self._slots.free.release()
        self._leave()

    def _enter(self) -> None:
        """Take a place, if need be that of a request that is slow enough to be dropped."""
        slots, now = self._slots, self._clock()
        if len(slots.inside) >= slots.most:
            longest = next(iter(slots.reading), None)
            if longest is None or now - (longest._began or now) < DAWDLING_SECONDS:
                raise self._full()
            longest._drop()
        slots.inside[self] = slots.reading[self] = None

    def _drop(self) -> None:
        self._leave()
        self._dropped = True
        if self._timer is not None:
            self._timer.reschedule(self._clock())

    def _leave(self) -> None:
        self._slots.inside.pop(self, None)
        self._slots.reading.pop(self, None)

    async def _part(self, began: float) -> Message:
        try:
            async with asyncio.timeout_at(began + BODY_SECONDS) as self._timer:
                message = await self._receive()
        except TimeoutError:
            self._dropped = True
        finally:
            self._timer = None
        if self._dropped:
            raise ApiError(
                408,
                f"the body did not arrive within {self._clock() - began:.0f} s; send it at once",
                code="body_timeout",
            )
        return message

    async def _take(self) -> None:
        self._slots.reading.pop(self, None)
        try:
            async with asyncio.timeout(WAITING_SECONDS):
                await self._slots.free.acquire()
        except TimeoutError:
            raise self._full() from None
        self._holds = True

    def _full(self) -> ApiError:
        inside = len(self._slots.inside)
        return overloaded(f"{inside} requests are in progress; try again shortly")
