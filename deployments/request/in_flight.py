"""What this ingress has under way, and what every replica has before it in consequence."""

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from router.load import ranked
from schemas import DecodeRequest, LoadReport

REMEMBERED = 4096
"""Ended requests that are remembered until no report lists them any more."""

REPORTS_WITHOUT = 3
"""So many reports without a request that their replica has accepted say that it has ended there:
the first may be from before that, the second may have been on its way."""


@dataclass
class _Sent:
    """A request under way. `replica` is None while nothing says where it goes. Once its replica has
    `reported` it, a report without it says that it has ended there; so do REPORTS_WITHOUT of them
    `since` it was accepted, by the times that they bear."""

    request: DecodeRequest
    replica: str | None = None
    reported: bool = False
    since: set[float] | None = None

    def is_new_to(self, report: LoadReport) -> bool:
        """Whether the report could not know of it yet."""
        self.reported |= self.request.request_id in report.requests
        if self.since is not None and len(self.since) < REPORTS_WITHOUT:
            self.since.add(report.time)
        return not self.reported and (self.since is None or len(self.since) < REPORTS_WITHOUT)


class InFlight:
    """Requests under way, added to reports that do not know of them, and those that have ended
    taken off reports that still do.

    Reports are up to half a second old. Without this a burst of prompts would all go to the replica
    that was idle before it, and a replica whose only answer has just ended would count as busy.
    Reports list what they count, so no clock is asked. The policy predicts from `loads`, and by the
    same figures the request router chooses among a method's replicas. It runs in a thread of Ray
    Serve's, so all of this may be called from any thread.
    """

    def __init__(self, reports: Callable[[], Sequence[LoadReport]]) -> None:
        self._reports = reports
        self._sent: dict[str, _Sent] = {}
        self._ended: OrderedDict[tuple[str, str], DecodeRequest] = OrderedDict()
        """By id and replica: another replica may have had the request before."""
        self._lock = threading.Lock()

    @contextmanager
    def sent(self, request: DecodeRequest) -> Iterator[None]:
        """`request` is under way until it has ended, at the end of the block at the latest: given
        up, it is left to its replica's reports to say how long it goes on there."""
        with self._lock:
            self._sent[request.request_id] = _Sent(request)
        try:
            yield
        finally:
            with self._lock:
                self._sent.pop(request.request_id, None)

    def ended(self, request_id: str) -> None:
        """The request's last chunk is there, whether or not its client has read it."""
        with self._lock:
            sent = self._sent.pop(request_id, None)
            if sent is not None and sent.replica is not None:
                self._ended[request_id, sent.replica] = sent.request
            while len(self._ended) > REMEMBERED:
                self._ended.popitem(last=False)

    def placed(self, request_id: str, replica: str) -> None:
        """The request goes to `replica`, which is about to be asked."""
        with self._lock:
            self._place(request_id, replica)

    def accepted(self, request_id: str, replica: str) -> None:
        """`replica` has the request, whichever was asked first."""
        with self._lock:
            sent = self._place(request_id, replica)
            if sent is not None:
                sent.since = set()

    def replica(self, request_id: str) -> str | None:
        """Where the request is, as far as is known."""
        with self._lock:
            sent = self._sent.get(request_id)
            return None if sent is None else sent.replica

    def _place(self, request_id: str, replica: str) -> _Sent | None:
        sent = self._sent.get(request_id)
        if sent is not None and sent.replica != replica:
            sent.replica, sent.reported, sent.since = replica, False, None
        return sent

    def loads(self) -> list[LoadReport]:
        """The last reports, each with what its replica could not know of yet. A request that has
        no replica yet counts on its method's least loaded one."""
        reports = {report.replica: report for report in self.placed_loads()}
        for sent in self._under_way():
            method = sent.request.method
            hosts = [r for r in reports.values() if r.healthy and method in r.methods]
            if sent.replica is None and hosts:
                least = ranked(hosts, method)[0]
                reports[least.replica] = _with(least, sent)
        return list(reports.values())

    def placed_loads(self, without: str | None = None) -> list[LoadReport]:
        """The same of what has a replica: what the next request finds. The one called `without`,
        which is about to be placed, does not count."""
        known = self._reports()
        with self._lock:
            reports = {report.replica: self._without_ended(report) for report in known}
            for name, sent in self._sent.items():
                report = None if sent.replica is None else reports.get(sent.replica)
                if report is not None and sent.is_new_to(report) and name != without:
                    reports[report.replica] = _with(report, sent)
        return list(reports.values())

    def sent_tokens(self, replicas: Collection[str], without: str | None = None) -> Counter[str]:
        """Output tokens asked for, of all that is under way on each of `replicas`, `without` one
        request."""
        tokens: Counter[str] = Counter()
        for sent in self._under_way(without):
            if sent.replica is not None and sent.replica in replicas:
                tokens[sent.replica] += sent.request.sampling.max_tokens
        return tokens

    def _without_ended(self, report: LoadReport) -> LoadReport:
        """The report without what has ended since it was made."""
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
    """`in_flight` is what this process has under way for `application`: Ray Serve makes the request
    routers, in the same process, and they find it by the application's name."""
    _of_applications[application] = in_flight


def published(application: str) -> InFlight | None:
    """What the ingress of `application` has under way, where it runs in this process."""
    return _of_applications.get(application)


def _slots(report: LoadReport, request: DecodeRequest) -> int:
    """The KV slots that the replica keeps for the request while it runs."""
    return report.slots_each or len(request.prompt_token_ids) + request.sampling.max_tokens


def _with(report: LoadReport, sent: _Sent) -> LoadReport:
    """The report with `sent`, at the end of the line where there is one."""
    place = "waiting" if report.waiting else "running"
    running = Counter(report.running_by_method)
    running[sent.request.method] += place == "running"
    return report.model_copy(
        update={
            place: getattr(report, place) + 1,
            "running_by_method": dict(running),
            "outstanding_tokens": report.outstanding_tokens + sent.request.sampling.max_tokens,
            "free_slots": max(0, report.free_slots - _slots(report, sent.request)),
        }
    )
