"""Which prefixes of prompts the replicas hold: by their reports, and by what was sent since."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from schemas import LoadReport
from schemas.prefixes import held_tokens, reported_hashes

REPORTS_WITHOUT = 3
"""Reports of a replica after which only they say what is left of an ended request's prompt: the
first may be older, the second may have been on its way."""


@dataclass
class _Sent:
    """Hold the hashes of a request's prompt. since: times of reports since it has ended."""

    hashes: Sequence[bytes]
    ended: bool = False
    since: set[float] = field(default_factory=set)


class Prefixes:
    """Count the prompts that this ingress has sent to each replica, until reports know of them."""

    def __init__(self) -> None:
        self._sent: dict[tuple[str, str], _Sent] = {}
        """By replica and request."""
        self._hashes: defaultdict[str, Counter[bytes]] = defaultdict(Counter)
        """By replica: the number of requests in `_sent` with each hash."""

    def sent(self, replica: str, request_id: str, hashes: Sequence[bytes]) -> None:
        """Record that a replica reads a request's prompt."""
        self.never_read(replica, request_id)
        self._sent[replica, request_id] = _Sent(hashes)
        self._hashes[replica].update(hashes)

    def ended(self, replica: str, request_id: str) -> None:
        """Record that a request has left a replica, which may keep its prompt."""
        sent = self._sent.get((replica, request_id))
        if sent is not None:
            sent.ended = True

    def never_read(self, replica: str, request_id: str) -> None:
        """Drop a request that another replica has taken."""
        sent = self._sent.pop((replica, request_id), None)
        if sent is None:
            return
        counts = self._hashes[replica]
        counts.subtract(sent.hashes)
        for one in sent.hashes:
            if not counts[one]:
                del counts[one]
        if not counts:
            del self._hashes[replica]

    def reported(self, reports: Iterable[LoadReport]) -> None:
        """Drop the ended requests that these reports, the last of each replica, know of."""
        times = {report.replica: report.time for report in reports}
        for (replica, request_id), sent in list(self._sent.items()):
            if not sent.ended:
                continue
            if replica in times:
                sent.since.add(times[replica])
            if replica not in times or len(sent.since) == REPORTS_WITHOUT:
                self.never_read(replica, request_id)

    def held(self, hashes: Sequence[bytes], reports: Iterable[LoadReport]) -> list[int]:
        """Return how many of a prompt's first tokens each reporting replica holds [n], at least.

        hashes: of the prompt, by `schemas.prefixes.prefix_hashes`. A replica that reports no
        prefixes may have no cache.
        """
        return [
            0
            if one.prefixes is None
            else held_tokens(
                hashes, reported_hashes(one.prefixes), self._hashes.get(one.replica, ())
            )
            for one in reports
        ]
