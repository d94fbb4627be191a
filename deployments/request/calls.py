"""One call of a method: its deadline, its circuit, and a watch for replicas that fall silent."""

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
    """The method's replica went away, or its engine gave up, before the answer's end."""


class Calls:
    """The methods' streams, and what is under way on them."""

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
        """The methods with a live replica, as far as is known."""
        live = {m for load in self._state.loads if load.healthy for m in load.methods}
        return frozenset(live & self._streams.keys())

    def loads(self) -> list[LoadReport]:
        """The replicas' last reports, with what they cannot know of yet."""
        return self._in_flight.loads()

    async def stream(self, request: DecodeRequest, whole: bool, deadline: float | None) -> Chunks:
        """The answer, to its last chunk; closing the stream cancels the work.

        Raises EngineRefusedError and EngineBusyError at first, RequestFaultError, MethodLostError
        or what a replica died of at any time, and DeadlineError at `deadline` (the event loop's
        time).
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
        """The method's live replicas, as far as is known."""
        return frozenset(r.replica for r in self._state.loads if r.healthy and method in r.methods)

    def _lost(self, request: DecodeRequest, watched: frozenset[str]) -> bool:
        """Whether the replica that has the request is no longer live; where nothing says which one
        has it, whether none of its method is."""
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
        """The next chunk. Raises MethodLostError once the request's replica, one of those `watched`
        since they were live at first, stops reporting, or says that its engine has failed, and
        others go on: Ray Serve would otherwise hold the request until a new one has started. Where
        nobody reports, the reports are late, or there is nobody else to ask."""
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
