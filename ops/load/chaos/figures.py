"""What a fault's run says of the service. docs/measuring.md has the definitions."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ops.load.chaos.clients import Request

LATE_FACTOR = 2.0
LATE_SECONDS = 1.0


@dataclass(frozen=True)
class Run:
    """One fault. Moments are in seconds on the requests' clock.

    recovered: None where the service was not whole again in time. counted: ids of the observations
    in the stored state, just before the fault and at the end.
    """

    fault: str
    befell: str
    injected: float
    recovered: float | None
    requests: Sequence[Request]
    counted: tuple[frozenset[str], frozenset[str]]


def row(run: Run) -> dict[str, Any]:
    """The figures of a run. Those of requests are of all that had not ended before the fault."""
    calm = [r for r in run.requests if _ended(r) < run.injected]
    met = [r for r in run.requests if _ended(r) >= run.injected]
    limit = late_above(calm)
    silences = [(r, *_silence(r, run.injected)) for r in met]
    late = [end for r, seconds, end in silences if r.outcome == "answered" and seconds > limit]
    disturbed = [_ended(r) for r in met if r.outcome != "answered"] + late
    outcomes = Counter(r.outcome for r in met)
    before, after = run.counted
    answered = {r.id for r in run.requests if r.outcome == "answered" and r.id is not None}
    return {
        "fault": run.fault,
        "befell": run.befell,
        "requests_before": len(calm),
        "answered_before": sum(r.outcome == "answered" for r in calm),
        "requests": len(met),
        **{name: outcomes[name] for name in ("answered", "lost", "broken_off", "refused")},
        "errors": dict(Counter(r.error for r in met if r.outcome != "answered")),
        "late": len(late),
        "late_above_s": limit,
        "longest_silence_s": max((seconds for _, seconds, _ in silences), default=None),
        "service_recovered_s": None if run.recovered is None else run.recovered - run.injected,
        "clients_recovered_s": max((m - run.injected for m in disturbed), default=0.0),
        "observations_acknowledged": len(before),
        "acknowledged_lost": len(before - after),
        "never_counted": len(answered - after - before),
        "timeline": [_timed(r, run.injected) for r in run.requests],
    }


def late_above(calm: Sequence[Request]) -> float:
    """Seconds of silence above which an answer is late, from the requests of a quiet span."""
    longest = max((_silence(r)[0] for r in calm if r.outcome == "answered"), default=0.0)
    return LATE_FACTOR * longest + LATE_SECONDS


def _silence(request: Request, since: float = -math.inf) -> tuple[float, float]:
    """The seconds of a request's longest wait for the next piece or the end, of those that ended
    since then, and its end."""
    moments = [request.due, *request.pieces, _ended(request)]
    return max((end - begin, end) for begin, end in pairwise(moments) if end >= since)


def _ended(request: Request) -> float:
    assert request.ended is not None, "figures are of requests that have ended"
    return request.ended


def _timed(request: Request, injected: float) -> dict[str, Any]:
    first = request.pieces[0] - request.due if request.pieces else None
    return {
        "due": round(request.due - injected, 3),
        "outcome": request.outcome,
        "method": request.method,
        "error": request.error,
        "first_text_s": first and round(first, 3),
        "longest_silence_s": round(_silence(request)[0], 3),
        "seconds": round(_ended(request) - request.due, 3),
    }
