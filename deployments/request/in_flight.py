"""What this ingress has under way, and what every replica has before it in consequence."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from router.queueing import ranked
from schemas import DecodeRequest, LoadReport


@dataclass
class _Sent:
    """A request under way. `replica` is None while nothing says where it goes; a replica that has
    not accepted it by `since` (seconds since the epoch) cannot have reported it."""

    request: DecodeRequest
    since: float
    replica: str | None = None


class InFlight:
    """Requests under way, added to reports that are too old to know of them.

    Reports are up to half a second old; without this a burst of prompts would all go to the
    replica that was idle before it. The policy predicts from `loads`, and by the same figures the
    request router chooses among a method's replicas. It runs in a thread of Ray Serve's, so all of
    this may be called from any thread.
    """

    def __init__(self, reports: Callable[[], Sequence[LoadReport]]) -> None:
        self._reports = reports
        self._sent: dict[str, _Sent] = {}
        self._lock = threading.Lock()

    @contextmanager
    def sent(self, request: DecodeRequest) -> Iterator[None]:
        """`request` is under way until the block ends."""
        with self._lock:
            self._sent[request.request_id] = _Sent(request, time.time())
        try:
            yield
        finally:
            with self._lock:
                self._sent.pop(request.request_id, None)

    def placed(self, request_id: str, replica: str, *, accepted: bool) -> None:
        """The request goes to `replica`, which has `accepted` it or is about to be asked."""
        with self._lock:
            sent = self._sent.get(request_id)
            if sent is not None:
                sent.replica = replica
                sent.since = time.time() if accepted else float("inf")

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
        reports = {report.replica: report for report in self._reports()}
        for sent in self._under_way(without):
            if sent.replica is not None and sent.replica in reports:
                reports[sent.replica] = _with(reports[sent.replica], sent)
        return list(reports.values())

    def sent_tokens(self, replicas: Collection[str], without: str | None = None) -> Counter[str]:
        """Output tokens asked for, of all that is under way on each of `replicas`, `without` one
        request."""
        tokens: Counter[str] = Counter()
        for sent in self._under_way(without):
            if sent.replica is not None and sent.replica in replicas:
                tokens[sent.replica] += sent.request.sampling.max_tokens
        return tokens

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


def _with(report: LoadReport, sent: _Sent) -> LoadReport:
    """The report with `sent`, at the end of the line where there is one; unless it knows of it."""
    if report.time >= sent.since:
        return report
    tokens = sent.request.sampling.max_tokens
    slots = len(sent.request.prompt_token_ids) + tokens
    place = "waiting" if report.waiting else "running"
    running = Counter(report.running_by_method)
    running[sent.request.method] += place == "running"
    return report.model_copy(
        update={
            place: getattr(report, place) + 1,
            "running_by_method": dict(running),
            "outstanding_tokens": report.outstanding_tokens + tokens,
            "free_slots": max(0, report.free_slots - slots),
        }
    )
