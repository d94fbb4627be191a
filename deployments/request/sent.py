"""A request that an ingress has sent, until reports tell all of it."""

from dataclasses import dataclass

from router.replica_loads import Added
from schemas import DecodeRequest, LoadReport

REPORTS_WITHOUT = 3
"""Reports of a replica after which only they say what it has of a request that was accepted or has
ended: the first may be older, the second may have been on its way."""


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
