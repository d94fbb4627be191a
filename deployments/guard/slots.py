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

    def __init__(
        self, app: ASGIApp, ongoing: int, queued: int, body_seconds: float = BODY_SECONDS
    ) -> None:
        self._app = app
        self.body_seconds = body_seconds
        self._free = asyncio.Semaphore(ongoing)
        self._most = ongoing + queued
        self._inside: dict[Arrival, None] = {}
        self._reading: dict[Arrival, None] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in BODILESS:
            await self._app(scope, receive, send)
            return
        arrival = Arrival(self, receive)
        try:
            await self._app(scope, arrival, send)
        finally:
            arrival.end()

    def enter(self, arrival: "Arrival") -> None:
        """Count a request before its body is read.

        Raises ApiError 429 if every place is taken and no other request is slow enough to be
        dropped.
        """
        if len(self._inside) >= self._most:
            longest = next(iter(self._reading), None)
            if longest is None or longest.seconds < DAWDLING_SECONDS:
                raise self._full()
            self.leave(longest)
            longest.drop()
        self._inside[arrival] = self._reading[arrival] = None

    async def take(self, arrival: "Arrival") -> None:
        """Wait for a slot. Raises ApiError 429 where none becomes free in time."""
        self._reading.pop(arrival, None)
        try:
            async with asyncio.timeout(WAITING_SECONDS):
                await self._free.acquire()
        except TimeoutError:
            raise self._full() from None

    def give_back(self) -> None:
        """Free a slot that was taken."""
        self._free.release()

    def leave(self, arrival: "Arrival") -> None:
        """Stop counting a request."""
        self._inside.pop(arrival, None)
        self._reading.pop(arrival, None)

    def _full(self) -> ApiError:
        return overloaded(f"{len(self._inside)} requests are in progress; try again shortly")


class Arrival:
    """Receive one request's body and hold its slot: an ASGI `receive`."""

    def __init__(self, slots: Slots, receive: Receive) -> None:
        self._slots, self._receive = slots, receive
        self._began: float | None = None
        self._timer: asyncio.Timeout | None = None
        self._here = self._holds = self._dropped = False

    @property
    def seconds(self) -> float:
        """Return the seconds since the body was first asked for."""
        return 0.0 if self._began is None else asyncio.get_running_loop().time() - self._began

    def drop(self) -> None:
        """Stop reading the body, since another request takes the place."""
        self._dropped = True
        if self._timer is not None:
            self._timer.reschedule(asyncio.get_running_loop().time())

    async def __call__(self) -> Message:
        """Return the next message; the last one of the body once there is a slot.

        Raises ApiError: 408 if the body does not arrive in time, 429 if every place is taken.
        """
        if self._here:
            return await self._receive()
        if self._began is None:
            self._slots.enter(self)
            self._began = asyncio.get_running_loop().time()
        message = await self._part(self._began + self._slots.body_seconds)
        if not message.get("more_body", False):
            self._here = True
            await self._slots.take(self)
            self._holds = True
        return message

    async def _part(self, deadline: float) -> Message:
        try:
            async with asyncio.timeout_at(deadline) as self._timer:
                message = await self._receive()
        except TimeoutError:
            self._dropped = True
        finally:
            self._timer = None
        if self._dropped:
            raise ApiError(
                408,
                f"the body did not arrive within {self.seconds:.0f} s; send it at once",
                code="body_timeout",
            )
        return message

    def end(self) -> None:
        """Give the slot and the place back."""
        if self._holds:
            self._slots.give_back()
        self._slots.leave(self)
