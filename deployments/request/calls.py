"""One call of a method, with its deadline, its circuit breaker and a watch for silent replicas."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Set
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import partial

from deployments.request.circuits import Circuits
from deployments.request.deadline import DeadlineError
from deployments.request.in_flight import InFlight
from deployments.request.progress import Progress, batch_of
from deployments.request.routing_state import RoutingState
from deployments.request.watch import Watch
from router import predict
from router.replica_loads import ReplicaLoads
from schemas import DecodeChunk, DecodeRequest, DecodeStats, LoadReport
from workers.engine import EngineBusyError, EngineRefusedError, RequestFaultError

LATE = 2.0
"""How many times as long as predicted the steps of an answer take if its missed deadline counts as
the method's failure. Single answers differ by a sixth (`router.evidence.STEP_SPREAD`)."""

Chunks = AsyncGenerator[DecodeChunk, None]
# (request, whole) -> the answer; raises EngineRefusedError or EngineBusyError at first, anything
# else where the replica is gone.
MethodStream = Callable[[DecodeRequest, bool], Chunks]


class MethodLostError(RuntimeError):
    """The method's replica or engine failed before the end of the answer."""


@dataclass(frozen=True)
class Terms:
    """Hold what a call has to keep, and who learns from an answer that is cut off.

    deadline: on the event loop's clock. cut: takes the statistics of an answer that is ended by its
    client, its deadline or a failure.
    """

    deadline: float | None
    cut: Callable[[DecodeStats], None]


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
        return frozenset(self._in_flight.present().live.keys() & self._streams.keys())

    async def stream(self, request: DecodeRequest, whole: bool, terms: Terms) -> Chunks:
        """Yield the answer to its last chunk; closing the stream cancels the work.

        Raises EngineRefusedError and EngineBusyError before the first chunk; RequestFaultError,
        MethodLostError, DeadlineError and the replica's own errors at any time.
        """
        method = request.method
        since, failed = self._circuits.sent(method), None
        watched = self._hosts(method)
        progress = Progress(request, _now(), whole)
        try:
            lost = partial(self._lost, request, watched)
            with self._followed(progress, terms), Watch(terms.deadline, lost) as watch:
                async with aclosing(self._streams[method](request, whole)) as chunks:
                    chunk = await watch.next(chunks)
                    while chunk is not None:
                        if chunk.request_fault:
                            raise RequestFaultError(chunk.error)
                        if chunk.finish_reason in ("error", "cancelled"):
                            raise MethodLostError(chunk.error or chunk.finish_reason)
                        progress.saw(chunk, _now())
                        if progress.ended:
                            failed = False
                            self._in_flight.ended(request.request_id)
                        arrived = _now()
                        try:
                            yield chunk
                        finally:
                            progress.held += _now() - arrived
                        chunk = await watch.next(chunks)
                if failed is None:
                    raise MethodLostError("the stream ended without a last chunk")
        except (EngineRefusedError, EngineBusyError, RequestFaultError):
            raise
        except DeadlineError:
            failed = progress.late or failed
            raise
        except Exception:
            if progress.ended:  # what fails now is not the answer, which is complete
                return
            failed = True
            raise
        finally:
            self._circuits.ended(method, since, failed)

    @contextmanager
    def _followed(self, progress: Progress, terms: Terms) -> Iterator[None]:
        """Track a request in flight, and whether its replica fails; if its answer is cut off, say
        how far it came."""
        request = progress.request
        with self._in_flight.sent(request):
            try:
                yield
            except (EngineRefusedError, EngineBusyError):
                progress.ended = True
                raise
            except (RequestFaultError, DeadlineError):
                raise
            except Exception:  # whatever the failure, as for the circuit
                self._in_flight.failed(request.request_id)
                raise
            finally:
                progress.late = self._late(progress)
                stats = progress.cut(_now(), self._report(request))
                if stats is not None:
                    terms.cut(stats)

    def _report(self, request: DecodeRequest) -> LoadReport | None:
        """Return the report of the request's replica with the requests in flight; None if it is
        unknown."""
        loads, possible = self._possible(request)
        return loads.report(possible[0]) if len(possible) == 1 else None

    def _late(self, progress: Progress) -> bool:
        """Return whether a method has taken far longer than predicted, whatever its prompt is.

        Clients choose prompts, lengths and deadlines. So the steps that have arrived and the next
        one count, not their tokens. Nothing of a prompt counts as cached, and the prompts that this
        ingress has sent before are read first. While requests wait for a place, the prediction says
        nothing.
        """
        request, now, table = progress.request, _now(), self._state.table
        if progress.ended or progress.held_up(now) or request.method not in table.methods:
            return False
        loads, possible = self._possible(request)
        if not possible or loads.waiting[possible].any():
            return False
        fullest = loads.report(max(possible, key=lambda i: loads.running[i]))
        usual = predict.uncached_seconds(
            table,
            request.method,
            self._in_flight.prompts(request),
            progress.needed,
            batch_of(request.method, fullest),
        )
        return progress.waited(now) > LATE * usual

    def _possible(self, request: DecodeRequest) -> tuple[ReplicaLoads, list[int]]:
        """Return the present loads, and the replicas (by index) that may have the request: its own
        if it is known."""
        loads, replica = self._in_flight.present(), self._in_flight.replica(request.request_id)
        hosts = [i for i, r in enumerate(loads.reports) if request.method in r.methods]
        return loads, [i for i in hosts if replica in (None, loads.reports[i].replica)]

    def _hosts(self, method: str) -> Set[str]:
        """Return the replicas of a method that report to be live."""
        return self._in_flight.present().live.get(method, frozenset())

    def _lost(self, request: DecodeRequest, watched: Set[str]) -> MethodLostError | None:
        """Return an error if the request's replica, one of those `watched`, is no longer live.

        It stops reporting or reports a failed engine, while others go on. Ray Serve would hold the
        request until a new replica has started. If the replica is unknown, all replicas of its
        method have to be gone. If no replica reports, only the reports are late, or there is no
        other replica to ask.
        """
        if not watched or not self.ready():
            return None
        hosts, replica = self._hosts(request.method), self._in_flight.replica(request.request_id)
        gone = not hosts if replica is None else replica in watched - hosts
        return MethodLostError(f"{request.method}: its replica is not live") if gone else None


def _now() -> float:
    return asyncio.get_running_loop().time()
