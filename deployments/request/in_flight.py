"""The requests that this ingress has in flight, and the replicas' loads corrected by them."""

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from router.load import ranked
from schemas import DecodeRequest, LoadReport, RoutingTable

REMEMBERED = 4096
"""Ended requests to remember until no report lists them."""

MANY_INGRESSES = 5
"""Ingresses from which on this one does not know what the others have sent since the reports. If
each took the replica with the least work, all would take the same one. With four it still pays."""

REPORTS_WITHOUT = 3
"""Reports without a request that their replica has accepted, after which it counts as ended: the
first may be older, the second may have been on its way."""


@dataclass
class _Sent:
    """Track one request in flight. `replica` is None while its replica is unknown.

    Once its replica has `reported` the request, a report without it means that it has ended there.
    So do REPORTS_WITHOUT reports `since` it was accepted, counted by their times.
    """

    request: DecodeRequest
    replica: str | None = None
    reported: bool = False
    since: set[float] | None = None

    def is_new_to(self, report: LoadReport) -> bool:
        """Return whether the report could not have counted this request yet."""
        self.reported |= self.request.request_id in report.requests
        if self.since is not None and len(self.since) < REPORTS_WITHOUT:
            self.since.add(report.time)
        return not self.reported and (self.since is None or len(self.since) < REPORTS_WITHOUT)


class InFlight:
    """Correct load reports by the requests that began or ended after they were made.

    Reports are up to half a second old. Without the correction a burst of prompts would all go to
    the replica that was idle before, and a replica whose only answer has just ended would count as
    busy. Reports list the requests that they count, so no clock is needed.

    The policy predicts from `loads`, and the request router chooses a replica by the same figures.
    The router runs in a thread of Ray Serve, so every method is thread-safe.
    """

    def __init__(
        self,
        reports: Callable[[], Sequence[LoadReport]],
        table: Callable[[], RoutingTable | None] = lambda: None,
    ) -> None:
        """table: predicts the step times that tell how fast each replica is."""
        self._reports = reports
        self._table = table
        self._sent: dict[str, _Sent] = {}
        self._ended: OrderedDict[tuple[str, str], DecodeRequest] = OrderedDict()
        """By id and replica: another replica may have had the request before."""
        self._lock = threading.Lock()

    @contextmanager
    def sent(self, request: DecodeRequest) -> Iterator[None]:
        """Track `request` during the block, until `ended` at the latest.

        If the block ends first, the request was given up: its replica's reports say how long it
        goes on there.
        """
        with self._lock:
            self._sent[request.request_id] = _Sent(request)
        try:
            yield
        finally:
            with self._lock:
                self._sent.pop(request.request_id, None)

    def ended(self, request_id: str) -> None:
        """Record that the request's last chunk has arrived, whether or not its client has read
        it."""
        with self._lock:
            sent = self._sent.pop(request_id, None)
            if sent is not None and sent.replica is not None:
                self._ended[request_id, sent.replica] = sent.request
            while len(self._ended) > REMEMBERED:
                self._ended.popitem(last=False)

    def placed(self, request_id: str, replica: str) -> None:
        """Record that `replica` is about to be asked for the request."""
        with self._lock:
            self._place(request_id, replica)

    def accepted(self, request_id: str, replica: str) -> None:
        """Record that `replica` has accepted the request, whichever was asked first."""
        with self._lock:
            sent = self._place(request_id, replica)
            if sent is not None:
                sent.since = set()

    def replica(self, request_id: str) -> str | None:
        """Return the request's replica, None while it is unknown."""
        with self._lock:
            sent = self._sent.get(request_id)
            return None if sent is None else sent.replica

    def prompts(self, request: DecodeRequest) -> list[int]:
        """Return the tokens of the prompts that may be read before this request's first token: its
        own, and those of the requests of this ingress on its replica, or of its method if the
        replica is unknown."""
        replica = self.replica(request.request_id)
        return [
            len(sent.request.known_token_ids)
            for sent in self._under_way()
            if (
                sent.request.method == request.method
                if replica is None
                else sent.replica in (None, replica)
            )
        ]

    def _place(self, request_id: str, replica: str) -> _Sent | None:
        sent = self._sent.get(request_id)
        if sent is not None and sent.replica != replica:
            sent.replica, sent.reported, sent.since = replica, False, None
        return sent

    def loads(self) -> list[LoadReport]:
        """Return the last reports, corrected by the requests in flight.

        A request without a known replica counts on the least loaded one of its method.
        """
        reports = {report.replica: report for report in self.placed_loads()}
        for sent in self._under_way():
            method = sent.request.method
            hosts = [r for r in reports.values() if r.healthy and method in r.methods]
            if sent.replica is None and hosts:
                least = self._by_work(hosts, sent.request)[0]
                reports[least.replica] = _with(least, sent)
        return list(reports.values())

    def ranked(self, loads: Sequence[LoadReport], request: DecodeRequest) -> list[LoadReport]:
        """Order loads by which replica should take the request.

        The first is the one with the least work. If most requests are other ingresses', which see
        the same loads, it is the better of the first two healthy ones: so `loads` come in random
        order.
        """
        order = self._by_work(loads, request)
        everyone = sum(report.running + report.waiting for report in self._reports())
        if len(self._sent) * MANY_INGRESSES >= everyone:
            return order
        pair = [load for load in loads if load.healthy][:2] or order
        first = self._by_work(pair, request)[0]
        return [first, *(load for load in order if load is not first)]

    def _by_work(self, loads: Sequence[LoadReport], request: DecodeRequest) -> list[LoadReport]:
        return ranked(loads, request.method, request.outstanding(0), self._table())

    def placed_loads(self, without: str | None = None) -> list[LoadReport]:
        """Return the last reports, corrected by the requests whose replica is known.

        without: id of a request that is about to be placed and does not count.
        """
        known = self._reports()
        with self._lock:
            reports = {report.replica: self._without_ended(report) for report in known}
            for name, sent in self._sent.items():
                report = None if sent.replica is None else reports.get(sent.replica)
                if report is not None and sent.is_new_to(report) and name != without:
                    reports[report.replica] = _with(report, sent)
        return list(reports.values())

    def sent_tokens(self, replicas: Collection[str], without: str | None = None) -> Counter[str]:
        """Return the output tokens asked for or expected on each of `replicas`, except of the
        request `without`."""
        tokens: Counter[str] = Counter()
        for sent in self._under_way(without):
            if sent.replica is not None and sent.replica in replicas:
                tokens[sent.replica] += sent.request.outstanding(0)
        return tokens

    def _without_ended(self, report: LoadReport) -> LoadReport:
        """Return the report without the requests that have ended since it was made."""
        gone = {
            name: self._ended[name, report.replica]
            for name in report.requests
            if (name, report.replica) in self._ended
        }
        if not gone:
            return report
        ran = [gone[name] for name in list(report.requests)[: report.running] if name in gone]
        running = Counter(report.running_by_method)
        running.subtract(request.method for request in ran)
        tokens = sum(report.requests[name] for name in gone)
        return report.model_copy(
            update={
                "running": report.running - len(ran),
                "waiting": max(0, report.waiting - (len(gone) - len(ran))),
                "running_by_method": dict(+running),
                "outstanding_tokens": max(0, report.outstanding_tokens - tokens),
                "free_slots": report.free_slots + sum(_slots(report, request) for request in ran),
            }
        )

    def _under_way(self, without: str | None = None) -> list[_Sent]:
        with self._lock:
            return [sent for name, sent in self._sent.items() if name != without]


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


def _slots(report: LoadReport, request: DecodeRequest) -> int:
    """Return the KV slots that the replica reserves for the request while it runs."""
    return report.slots_each or len(request.prompt_token_ids) + request.outstanding(0)


def _with(report: LoadReport, sent: _Sent) -> LoadReport:
    """Return the report with `sent` added, at the end of the waiting line if there is one."""
    place = "waiting" if report.waiting else "running"
    running = Counter(report.running_by_method)
    running[sent.request.method] += place == "running"
    return report.model_copy(
        update={
            place: getattr(report, place) + 1,
            "running_by_method": dict(running),
            "outstanding_tokens": report.outstanding_tokens + sent.request.outstanding(0),
            "free_slots": max(0, report.free_slots - _slots(report, sent.request)),
        }
    )
