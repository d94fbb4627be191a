"""One call of a method, with its deadline, its circuit breaker and a watch for silent replicas."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

from deployments.request.circuits import Circuits
from deployments.request.deadline import DeadlineError, within
from deployments.request.in_flight import InFlight
from deployments.request.routing_state import RoutingState
from schemas import DecodeChunk, DecodeRequest, LoadReport
from workers.engine import EngineBusyError, EngineRefusedError, RequestFaultError

_WATCH_SECONDS = 0.5

Chunks = AsyncGenerator[DecodeChunk, None]
# (request, whole) -> the answer; raises EngineRefusedError or EngineBusyError at first, anything
# else where the replica is gone.
MethodStream = Callable[[DecodeRequest, bool], Chunks]


class MethodLostError(RuntimeError):
    """The method's replica or engine failed before the end of the answer."""


class Calls:
    """Call the methods' streams and track the requests in flight."""

    def __init__(
        self,
        streams: Mapping[str, MethodStream],
        state: RoutingState,
        circuits: Circuits,
        in_flight: InFlight,
    ) -> None:
        self._streams = streams
        self._state = state
        self._circuits = circuits
        self._in_flight = in_flight

    def ready(self) -> frozenset[str]:
        """Return the methods that report a live replica."""
        live = {m for load in self._state.loads if load.healthy for m in load.methods}
        return frozenset(live & self._streams.keys())

    def loads(self) -> list[LoadReport]:
        """Return the replicas' last reports, corrected by the requests in flight."""
        return self._in_flight.loads()

    async def stream(self, request: DecodeRequest, whole: bool, deadline: float | None) -> Chunks:
        """Yield the answer to its last chunk; closing the stream cancels the work.

        deadline: on the event loop's clock. Raises EngineRefusedError and EngineBusyError before
        the first chunk; RequestFaultError, MethodLostError, DeadlineError and the replica's own
        errors at any time.
        """
        method = request.method
        since, failed = self._circuits.sent(method), None
        watched = self._hosts(method)
        try:
            with self._in_flight.sent(request):
                async with aclosing(self._streams[method](request, whole)) as chunks:
                    chunk = await self._next(request, chunks, watched, deadline)
                    while chunk is not None:
                        if chunk.request_fault:
                            raise RequestFaultError(chunk.error)
                        if chunk.finish_reason in ("error", "cancelled"):
                            raise MethodLostError(chunk.error or chunk.finish_reason)
                        if chunk.finish_reason is not None:
                            failed = False
                            self._in_flight.ended(request.request_id)
                        yield chunk
                        chunk = await self._next(request, chunks, watched, deadline)
                if failed is None:
                    raise MethodLostError("the stream ended without a last chunk")
        except (EngineRefusedError, EngineBusyError, RequestFaultError, DeadlineError):
            raise
        except Exception:
            failed = True
            raise
        finally:
            self._circuits.ended(method, since, failed)

    def _hosts(self, method: str) -> frozenset[str]:
        """Return the replicas of a method that report to be live."""
        return frozenset(r.replica for r in self._state.loads if r.healthy and method in r.methods)

    def _lost(self, request: DecodeRequest, watched: frozenset[str]) -> bool:
        """Return whether the request's replica is no longer live.

        If the replica is unknown, return whether all replicas of its method are gone.
        """
        if not watched or not self.ready():
            return False
        hosts, replica = self._hosts(request.method), self._in_flight.replica(request.request_id)
        return not hosts if replica is None else replica in watched - hosts

    async def _next(
        self,
        request: DecodeRequest,
        chunks: Chunks,
        watched: frozenset[str],
        deadline: float | None,
    ) -> DecodeChunk | None:
        """Return the next chunk.

        Raises MethodLostError if the request's replica, one of those `watched`, stops reporting or
        reports a failed engine while others go on. Ray Serve would hold the request until a new
        replica has started. If no replica reports, only the reports are late, or there is no other
        replica to ask.
        """
        pending = asyncio.ensure_future(anext(chunks, None))
        try:
            async with within(deadline):
                while not pending.done():
                    await asyncio.wait({pending}, timeout=_WATCH_SECONDS)
                    if not pending.done() and self._lost(request, watched):
                        raise MethodLostError(f"{request.method}: its replica is not live")
            return pending.result()
        except BaseException:
            pending.cancel()
            await asyncio.wait({pending})
            raise
