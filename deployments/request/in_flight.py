"""The requests that this ingress has in flight, and the replicas' loads corrected by them."""

import threading
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

import numpy as np

from deployments.request.circuits import PAUSE_SECONDS
from deployments.request.prefixes import Prefixes
from router.acceptance import Floats
from router.replica_loads import Added, ReplicaLoads
from schemas import DecodeRequest, LoadReport, RoutingTable
from schemas.prefixes import prefix_hashes

MANY_INGRESSES = 5
"""Ingresses from which on this one does not know what the others have sent since the reports. If
each took the replica with the least work, all would take the same one. With four it still pays."""

REMEMBERED = 4096
"""Ended requests to remember until reports tell, and replicas and requests that failed: reports may
stop, and what never ends well is never forgotten otherwise."""

REPORTS_WITHOUT = 3
"""Reports of a replica after which only they say what it has of a request that was accepted or has
ended: the first may be older, the second may have been on its way."""

FAILURES_IN_A_ROW = 2
"""Failures after which a replica pauses. A single one may be the request's doing."""

PAUSES, LOST, NEVER = 1, 2, 4


@dataclass
class Sent:
    """Track one request in flight, or ended. `replica` is None while its replica is unknown.

    Once its replica has `reported` the request, a report without it means that it has ended there.
    So do REPORTS_WITHOUT reports `since` it was accepted, counted by their times; later `since` it
    has ended. added: what it adds to the present reports. hashes: of its prompt's prefixes. gone:
    whether its last chunk has arrived, so that no report should count it.
    """

    request: DecodeRequest
    hashes: list[bytes]
    replica: str | None = None
    reported: bool = False
    since: set[float] | None = None
    added: Added | None = None
    gone: bool = False

    def is_new_to(self, report: LoadReport) -> bool:
        """Return whether the report could not have counted this request yet."""
        self.reported |= self.request.request_id in report.requests
        return not self.told_by(report) and not self.reported

    def told_by(self, report: LoadReport) -> bool:
        """Count a report; return whether there are so many that only they say what is left."""
        if self.since is None:
            return False
        if len(self.since) < REPORTS_WITHOUT:
            self.since.add(report.time)
        return len(self.since) == REPORTS_WITHOUT


class Failures:
    """Count each replica's failures since its last complete answer.

    A replica that fails within milliseconds always has the least work, so work alone would rank it
    first. Its method's circuit does not help: other methods may have the same replica.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._replicas: dict[str, tuple[int, float]] = {}
        """Failures since the last response, and when the pause ends."""
        self._requests: dict[str, str] = {}
        """The replica that each request failed on last."""

    def failed(self, replica: str, request_id: str) -> None:
        """Count a failure. The replica pauses if it is not the first one in a row."""
        count, _ = self._replicas.pop(replica, (0, 0.0))
        self._replicas[replica] = count + 1, self._clock() + PAUSE_SECONDS
        self._requests[request_id] = replica
        if len(self._replicas) > REMEMBERED:
            del self._replicas[next(iter(self._replicas))]
        if len(self._requests) > REMEMBERED:
            del self._requests[next(iter(self._requests))]

    def answered(self, replica: str, request_id: str) -> None:
        """Forget the failures of a replica that has completed a response."""
        self._replicas.pop(replica, None)
        self._requests.pop(request_id, None)

    def ranks(self, replicas: Sequence[str], lost: Sequence[bool], request_id: str) -> list[int]:
        """Return per replica 0, or why it comes after others: PAUSES, LOST, or both.

        NEVER marks the replica that the request failed on last, if another one is not lost.
        """
        failed = self._requests.get(request_id)
        others = any(name != failed and not gone for name, gone in zip(replicas, lost, strict=True))
        return [
            NEVER if name == failed and others else LOST * gone + PAUSES * self._pauses(name)
            for name, gone in zip(replicas, lost, strict=True)
        ]

    def _pauses(self, replica: str) -> bool:
        count, until = self._replicas.get(replica, (0, 0.0))
        return count >= FAILURES_IN_A_ROW and self._clock() < until


class InFlight:
    """Correct load reports by the requests that began or ended after they were made.

    Reports are up to half a second old. Without the correction a burst of prompts would all go to
    the replica that was idle before, and a replica whose only answer has just ended would count as
    busy. Reports list the requests that they count, so no clock is needed. Each request changes the
    numbers when it begins and ends; only new reports make all requests be gone through.

    The policy predicts from `present`, and the request router chooses a replica by the same
    figures. The router runs in a thread of Ray Serve, so every method is thread-safe.
    """

    def __init__(
        self,
        reports: Callable[[], Sequence[LoadReport]],
        table: Callable[[], RoutingTable | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """table: predicts the step times that tell how fast each replica is. clock: times the
        pauses of replicas that fail."""
        self._reports = reports
        self._table = table
        self._sent: dict[str, Sent] = {}
        self._ended: dict[tuple[str, str], Sent] = {}
        """By replica and id, the oldest first: another replica may have had the request before."""
        self._loads = ReplicaLoads(())
        self._everyone = 0.0
        """Requests of all ingresses."""
        self._prefixes = Prefixes()
        self._failures = Failures(clock)
        self._lock = threading.RLock()

    def begin(self, request: DecodeRequest) -> None:
        """Track `request` from now on."""
        hashes = prefix_hashes(request.known_token_ids, request.scope)
        with self._lock:
            self._sent[request.request_id] = sent = Sent(request, hashes)
            self._add(sent, self.present())

    def give_up(self, request_id: str, *, gone: bool = False) -> None:
        """Track a request no longer. gone: whether its client has left, which ends it; else its
        replica's reports say how long it goes on there."""
        self._pop(request_id, gone=gone)

    def ended(self, request_id: str) -> None:
        """Record that the request's last chunk has arrived, whether or not its client has read
        it."""
        with self._lock:
            if replica := self.replica(request_id):
                self._failures.answered(replica, request_id)
            self._pop(request_id, gone=True)

    def failed(self, request_id: str) -> None:
        """Record that the request's replica, if it is known, has failed on it."""
        with self._lock:
            if replica := self.replica(request_id):
                self._failures.failed(replica, request_id)

    def place(self, request_id: str, replica: str, *, accepted: bool = False) -> None:
        """Record that `replica` is about to be asked for the request, or that it has accepted it,
        whichever was asked first."""
        with self._lock:
            sent = self._sent.get(request_id)
            if sent is None:
                return
            self._remove(sent)
            if sent.replica != replica:
                if sent.replica is not None:
                    self._prefixes.forget(sent.replica, request_id)
                self._ended.pop((replica, request_id), None)
                self._prefixes.sent(replica, request_id, sent.hashes)
                sent.replica, sent.reported, sent.since = replica, False, None
            if accepted:
                sent.since = set()
            self._add(sent, self.present())

    def replica(self, request_id: str) -> str | None:
        """Return the request's replica, None while it is unknown."""
        with self._lock:
            sent = self._sent.get(request_id)
            return None if sent is None else sent.replica

    def prompts(self, request: DecodeRequest) -> list[int]:
        """Return the tokens of the prompts that may be read before this request's first token: its
        own, and those of the requests of this ingress on its replica, or of its method if the
        replica is unknown."""
        with self._lock:
            replica = self.replica(request.request_id)
            return [
                len(sent.request.known_token_ids)
                for sent in self._sent.values()
                if (
                    sent.request.method == request.method
                    if replica is None
                    else sent.replica in (None, replica)
                )
            ]

    def present(self) -> ReplicaLoads:
        """Return the last reports, corrected by the requests in flight.

        A request without a known replica counts on the least loaded one of its method.
        """
        with self._lock:
            reports, table, loads = tuple(self._reports()), self._table(), self._loads
            if reports == loads.reports and table is loads.table:
                return loads
            if reports == loads.reports and table and table.methods == loads.methods:
                loads.retime(table)
                return loads
            self._loads = loads = ReplicaLoads(reports, table)
            self._prefixes.reported(reports)
            self._everyone = float((loads.running + loads.waiting).sum())
            for (replica, name), ended in list(self._ended.items()):
                place = loads.index.get(replica)
                if place is None or ended.told_by(reports[place]):
                    self._forget(replica, name)
                else:
                    self._take_off(loads, ended)
            for sent in self._sent.values():
                sent.added = None
                self._add(sent, loads)
            return loads

    def held(self, tokens: Sequence[int], scope: str) -> Floats:
        """Return how many of a prompt's first tokens each replica of `present` holds [n]."""
        hashes = prefix_hashes(tokens, scope)
        with self._lock:
            self.present()
            return self._prefixes.held(hashes)

    def ranked(
        self, replicas: Sequence[str], request: DecodeRequest, silent: Set[str] = frozenset()
    ) -> list[str]:
        """Order replicas by which should take the request; it is about to be placed.

        The first is the one with the least work, what it has to read of the prompt included. If
        most requests are other ingresses', which see the same loads, it is the best of the first
        two healthy ones and the one that holds most of the prompt: so `replicas` come in random
        order. A replica without a report counts with what this ingress has sent to it. Replicas
        that pause after failures, `silent` ones, whose reports have stopped, and unhealthy ones are
        left out while another one is well, even if that one is full. So is the replica that the
        request failed on last while another one is not lost.
        """
        with self._lock:
            loads = self.present()
            sent = self._sent.get(request.request_id)
            if sent is not None:
                self._remove(sent)
            tokens = request.outstanding(0)
            hashes = [] if sent is None else sent.hashes
            places = [loads.index.get(name) for name in replicas]
            held, length = self._prefixes.held(hashes), len(request.known_token_ids)
            method = loads.number(request.method)
            work = loads.work(tokens, method, length - held)
            each = [
                float(self._tokens(name) + tokens + loads.reading[method] * length)
                if i is None
                else work[i]
                for name, i in zip(replicas, places, strict=True)
            ]
            lost = [
                name in silent if i is None else not loads.healthy[i]
                for name, i in zip(replicas, places, strict=True)
            ]
            last = self._failures.ranks(replicas, lost, request.request_id)
            order = np.lexsort((each, last)).tolist()
            if len(self._sent) * MANY_INGRESSES < self._everyone:
                known = [0 if i is None else held[i] for i in places]
                healthy = [i for i in range(len(replicas)) if not last[i]] or order[:1]
                holder = max(healthy, key=lambda i: known[i])
                few = [*healthy[:2], *([holder] if known[holder] else ())]
                first = min(few, key=lambda i: each[i])
                order = [first, *(i for i in order if i != first)]
            well = [i for i in order if not last[i]]
            return [replicas[i] for i in well or order if last[i] != NEVER]

    def _pop(self, request_id: str, *, gone: bool) -> None:
        with self._lock:
            if request_id not in self._sent:
                return
            loads = self.present()
            sent = self._sent.pop(request_id)
            self._remove(sent)
            if sent.replica is None:
                return
            sent.since, sent.gone = set(), gone
            self._ended[sent.replica, request_id] = sent
            self._take_off(loads, sent)
            if len(self._ended) > REMEMBERED:
                self._forget(*next(iter(self._ended)))

    def _forget(self, replica: str, request_id: str) -> None:
        del self._ended[replica, request_id]
        self._prefixes.forget(replica, request_id)

    def _tokens(self, replica: str) -> int:
        """Return the output tokens of the requests in flight on a replica."""
        here = (sent for sent in self._sent.values() if sent.replica == replica)
        return sum(sent.request.outstanding(0) for sent in here)

    def _add(self, sent: Sent, loads: ReplicaLoads) -> None:
        """Count a request unless the reports count it already or no replica can have it."""
        if sent.added is not None:
            return
        if sent.replica is None:
            place = loads.least(sent.request.method, sent.request.outstanding(0))
        else:
            place = loads.index.get(sent.replica)
            if place is not None and not sent.is_new_to(loads.reports[place]):
                place = None
        sent.added = None if place is None else loads.add(place, sent.request)

    def _remove(self, sent: Sent) -> None:
        if sent.added is not None:
            self._loads.change(sent.added, -1)
            sent.added = None

    def _take_off(self, loads: ReplicaLoads, sent: Sent) -> None:
        """Take a request that has ended off a report that still lists it."""
        place, name = loads.index.get(sent.replica or ""), sent.request.request_id
        if place is None or not sent.gone or name not in loads.reports[place].requests:
            return
        report = loads.reports[place]
        ran = list(report.requests).index(name) < report.running
        loads.remove(place, sent.request, report.requests[name], running=ran)


_of_applications: dict[str, InFlight] = {}


def publish(application: str, in_flight: InFlight) -> None:
    """Make `in_flight` available to the request routers of `application`.

    Ray Serve creates the routers in this process and they find it by the application's name.
    """
    _of_applications[application] = in_flight


def published(application: str) -> InFlight | None:
    """Return what the ingress of `application` has in flight, None if it does not run in this
    process."""
    return _of_applications.get(application)
