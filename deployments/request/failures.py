"""The replicas that have failed lately, as this ingress sees them."""

import time
from collections.abc import Callable, Sequence

from deployments.request.circuits import PAUSE_SECONDS

FAILURES_IN_A_ROW = 2
"""Failures after which a replica pauses. A single one may be the request's doing."""

REMEMBERED = 4096
"""Replicas, and requests, to remember: those that never end well are never forgotten otherwise."""

PAUSES, LOST, NEVER = 1, 2, 4


class Failures:
    """Count each replica's failures since its last complete answer.

    A replica that fails within milliseconds always has the least work, so work alone would rank it
    first. Its method's circuit does not help: other methods may have the same replica.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._replicas: dict[str, tuple[int, float]] = {}
        """Failures since the last answer, and when the pause ends."""
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
        """Forget the failures of a replica that has completed an answer."""
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
