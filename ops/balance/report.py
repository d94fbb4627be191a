"""The figures of `bench balance`: what docs/measuring.md defines, as pure functions."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ops.service.client import Reply


@dataclass(frozen=True)
class Sample:
    """What a replica reported: its outstanding tokens at a time (seconds on its own clock)."""

    replica: str
    time: float
    outstanding_tokens: int


def time_averages(samples: Sequence[Sample]) -> dict[str, float]:
    """Outstanding tokens by replica, averaged over the time between its first and last report;
    each report holds until the next one. A replica with fewer than two reports is left out."""
    averages = {}
    for replica in sorted({sample.replica for sample in samples}):
        own = {s.time: s.outstanding_tokens for s in samples if s.replica == replica}
        times = sorted(own)
        if len(times) > 1:
            held = sum(own[a] * (b - a) for a, b in pairwise(times))
            averages[replica] = held / (times[-1] - times[0])
    return averages


def largest_over_smallest(averages: dict[str, float]) -> float | None:
    """1 is perfect balance; None where a replica had nothing to do."""
    smallest = min(averages.values(), default=0.0)
    return max(averages.values()) / smallest if smallest > 0.0 else None


def reason_shares(replies: Sequence[Reply]) -> dict[str, float]:
    """Of the answers, the share that each reason of the policy gave its method to."""
    reasons = Counter(reply.headers["x-specadapt-reason"] for reply in replies)
    return {reason: count / len(replies) for reason, count in sorted(reasons.items())}


def offered(
    share: float, rate: float, replies: Sequence[Reply | None], samples: Sequence[Sample]
) -> dict[str, Any]:
    """One load's figures; `rate`: requests offered a second."""
    answered = [reply for reply in replies if reply is not None]
    averages = time_averages(samples)
    return {
        "share_of_capacity": share,
        "offered_requests_per_s": rate,
        "requests": len(replies),
        "errors": len(replies) - len(answered),
        "mean_latency_s": sum(r.seconds for r in answered) / len(answered) if answered else None,
        "mean_outstanding_tokens": averages,
        "largest_over_smallest": largest_over_smallest(averages),
        "reasons": reason_shares(answered) if answered else {},
        "methods": dict(Counter(reply.headers["x-specadapt-method"] for reply in answered)),
    }
