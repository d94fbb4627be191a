"""Load shedding: low priorities are refused before the waiting lines are full."""

from collections.abc import Mapping, Sequence

from deployments.errors import ApiError
from schemas import LoadReport
from schemas.keys import Priority

SHARES: Mapping[Priority, float] = {"low": 0.25, "normal": 0.75, "high": 1.0}
"""Per priority, the share of all waiting places that may be full before requests are refused. At 1
only the replicas refuse."""


def lower(one: Priority, other: Priority) -> Priority:
    """Return the priority that makes room first."""
    return min(one, other, key=SHARES.__getitem__)


def shed(priority: Priority, loads: Sequence[LoadReport], max_waiting: int) -> None:
    """Raise ApiError 503 if a request of this priority has to make room."""
    places = max_waiting * sum(load.healthy for load in loads)
    waiting = sum(load.waiting for load in loads if load.healthy)
    if waiting and waiting >= SHARES[priority] * places and SHARES[priority] < 1.0:
        raise ApiError(
            503,
            f"{waiting} requests wait; priority {priority} is refused first: try again later",
            code="shed",
        )
