"""Calls of methods: with a deadline, a circuit breaker and a watch for silent replicas."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Set
from dataclasses import dataclass

from deployments.learning.link import FeedbackLink
from deployments.request.circuits import Circuits
from deployments.request.in_flight import InFlight
from deployments.request.progress import Progress, batch_of
from router import predict
from router.replica_loads import ReplicaLoads
from schemas import DecodeChunk, DecodeRequest, DecodeStats, LoadReport
from workers.engine import EngineBusyError, EngineRefusedError, RequestFaultError

LATE = 2.0
"""How many times as long as predicted the steps of a response take if its missed deadline counts as
the method's failure. Single responses differ by a tenth (`router.times.NOISE`)."""

WATCH_SECONDS = 0.5

Chunks = AsyncGenerator[DecodeChunk, None]
Cut = Callable[[DecodeStats, bool], None]
"""Takes the statistics of a response that its client, its deadline or a failure ends, and whether
its method has failed."""
# (request, whole) -> the response; raises EngineRefusedError or EngineBusyError at first, anything
# else where the replica is gone.
MethodStream = Callable[[DecodeRequest, bool], Chunks]


class MethodLostError(RuntimeError):
    """The method's replica or engine failed before the end of the response."""


class DeadlineError(Exception):
    """The request's deadline has passed."""


@dataclass(frozen=True)
class Calls:
    """Hold what the calls of methods share."""

    streams: Mapping[str, MethodStream]
    link: FeedbackLink
    circuits: Circuits
    in_flight: InFlight

    def ready(self) -> frozenset[str]:
        """Return the methods that report a live replica."""
        return frozenset(self.in_flight.present().live.keys() & self.streams.keys())

    def hosts(self, method: str) -> Set[str]:
        """Return the replicas of a method that report to be live."""
        return self.in_flight.present().live.get(method, frozenset())

    def lost(self, request: DecodeRequest, watched: Set[str]) -> bool:
        """Return whether the request's replica, one of those `watched`, is no longer live.

        It stops reporting or reports a failed engine, while others go on. Ray Serve would hold the
        request until a new replica has started. If the replica is unknown, all replicas of its
        method have to be gone. If no replica reports, only the reports are late, or there is no
        other replica to ask.
        """
        if not watched or not self.ready():
            return False
        hosts, replica = self.hosts(request.method), self.in_flight.replica(request.request_id)
        return not hosts if replica is None else replica in watched - hosts

    def report(self, request: DecodeRequest) -> LoadReport | None:
        """Return the report of the request's replica with the requests in flight; None if it is
        unknown."""
        loads, possible = self._possible(request)
        return loads.report(possible[0]) if len(possible) == 1 else None

    def late(self, progress: Progress, now: float) -> bool:
        """Return whether a method has taken far longer than predicted, whatever its prompt is.

        Clients choose prompts, lengths and deadlines. So the steps that have arrived and the next
        one count, not their tokens. Nothing of a prompt counts as cached, and the prompts that this
        ingress has sent before are read first. While requests wait for a place, the prediction says
        nothing.
        """
        request, table = progress.request, self.link.table
        if progress.ended or progress.held_up(now) or request.method not in table.methods:
            return False
        loads, possible = self._possible(request)
        if not possible or loads.waiting[possible].any():
            return False
        fullest = loads.report(max(possible, key=lambda i: loads.running[i]))
        usual = predict.uncached_seconds(
            table,
            request.method,
            self.in_flight.prompts(request),
            progress.needed,
            batch_of(request.method, fullest),
        )
        return progress.waited(now) > LATE * usual

    def _possible(self, request: DecodeRequest) -> tuple[ReplicaLoads, list[int]]:
        """Return the present loads, and the replicas (by index) that may have the request: its own
        if it is known."""
        loads, replica = self.in_flight.present(), self.in_flight.replica(request.request_id)
        hosts = [i for i, r in enumerate(loads.reports) if request.method in r.methods]
        return loads, [i for i in hosts if replica in (None, loads.reports[i].replica)]


class Call:
    """Ask one method for a response, and wait for its chunks.

    A deadline or a lost replica ends the wait. Their timers run for the whole response, because a
    timer and a task for every chunk would cost more than the chunk.
    """

    def __init__(
        self,
        calls: Calls,
        request: DecodeRequest,
        deadline: float | None,
        cut: Cut,
        *,
        whole: bool,
    ) -> None:
        """deadline: on the event loop's clock. whole: whether the response comes in one piece."""
        self.request = request
        self._calls, self._cut = calls, cut
        self._loop = asyncio.get_running_loop()
        self._chunks = calls.streams[request.method](request, whole)
        self._progress = Progress(request, self._loop.time(), whole)
        self._watched = calls.hosts(request.method)
        self._since = calls.circuits.sent(request.method)
        calls.in_flight.begin(request)
        self._read: float | None = None
        """Since when the reader has had the last chunk; None while a chunk is awaited."""
        self._waiting: asyncio.Timeout | None = None
        self._over: Exception | None = None
        """Why no further chunk is awaited."""
        self._closed = False
        self._look = self._loop.call_later(WATCH_SECONDS, self._watch)
        self._deadline: asyncio.TimerHandle | None = None
        if deadline is not None:
            passed = DeadlineError("the deadline passed")
            self._deadline = self._loop.call_at(deadline, self._end, passed)

    async def next(self) -> DecodeChunk | None:
        """Return the next chunk, None after the last one.

        Raises EngineRefusedError and EngineBusyError before the first chunk; RequestFaultError,
        MethodLostError, DeadlineError and the replica's own errors at any time. The call is closed
        after an error.
        """
        self._resume()
        progress = self._progress
        try:
            chunk = await self._arrived()
            if chunk is None:
                if not progress.ended:
                    raise MethodLostError("the stream ended without a last chunk")
                return None
            if chunk.request_fault:
                raise RequestFaultError(chunk.error)
            if chunk.finish_reason in ("error", "cancelled"):
                raise MethodLostError(chunk.error or chunk.finish_reason)
        except BaseException as error:
            await self.close(error)
            if progress.ended and self._is_failure(error):
                return None  # what fails now is not the response, which is complete
            raise
        progress.saw(chunk, self._loop.time())
        if progress.ended:
            self._calls.in_flight.ended(self.request.request_id)
        self._read = self._loop.time()
        return chunk

    async def close(self, error: BaseException | None = None) -> None:
        """End the work and count how the call ended, unless that has happened before.

        error: what the last chunk failed of; None if the response is complete or its reader leaves.
        """
        if self._closed:
            return
        self._closed = True
        self._resume()
        try:
            await self._chunks.aclose()
        except Exception as broken:  # whatever the failure, it is the replica's
            error = error or broken
        finally:
            self._look.cancel()
            if self._deadline is not None:
                self._deadline.cancel()
            self._settle(error)

    def _settle(self, error: BaseException | None) -> None:
        """Tell the circuit breaker and the requests in flight how the call ended; if its response
        is cut off, say how far it came."""
        calls, request, progress = self._calls, self.request, self._progress
        failed = False if progress.ended else None
        try:
            if self._is_failure(error) and not progress.ended:
                failed = True
                calls.in_flight.failed(request.request_id)
            if not isinstance(error, EngineRefusedError | EngineBusyError):
                now = self._loop.time()
                late = calls.late(progress, now)
                lost = bool(failed) or (late and progress.hung(now, late))
                stats = progress.cut(now, calls.report(request), late)
                if stats is None and lost:
                    stats = progress.nothing(now)
                if stats is not None:
                    self._cut(stats, lost)
                if isinstance(error, DeadlineError):
                    failed = late or failed
        finally:
            left = not isinstance(error, Exception) or isinstance(error, DeadlineError)
            calls.in_flight.give_up(request.request_id, gone=left)
            calls.circuits.ended(request.method, self._since, failed)

    @staticmethod
    def _is_failure(error: BaseException | None) -> bool:
        """Return whether an error is the fault of the method or its replica."""
        others = EngineRefusedError | EngineBusyError | RequestFaultError | DeadlineError
        return isinstance(error, Exception) and not isinstance(error, others)

    def _resume(self) -> None:
        """Count the time for which the reader had the last chunk."""
        if self._read is not None:
            self._progress.held += self._loop.time() - self._read
            self._read = None

    async def _arrived(self) -> DecodeChunk | None:
        """Wait for the next chunk until `_end`."""
        if self._over is not None:
            raise self._over
        try:
            async with asyncio.timeout(None) as self._waiting:
                return await anext(self._chunks, None)
        except Exception as error:
            if self._over is None:
                raise
            raise self._over from error
        finally:
            self._waiting = None

    def _watch(self) -> None:
        self._look = self._loop.call_later(WATCH_SECONDS, self._watch)
        if self._waiting is not None and self._calls.lost(self.request, self._watched):
            self._end(MethodLostError(f"{self.request.method}: its replica is not live"))

    def _end(self, why: Exception) -> None:
        if self._over is None:
            self._over = why
            if self._waiting is not None:
                self._waiting.reschedule(self._loop.time())
