"""Which requests are refused before the waiting lines are full, so that others find room."""

from collections.abc import Mapping, Sequence

from deployments.errors import ApiError
from schemas import LoadReport
from schemas.keys import Priority

SHARES: Mapping[Priority, float] = {"low": 0.25, "normal": 0.75, "high": 1.0}
"""How full the lines may be, all of them together, for a request to be taken. At 1 nothing is
refused here: then the replicas themselves do."""


def shed(priority: Priority, loads: Sequence[LoadReport], max_waiting: int) -> None:
    """Raises ApiError 503 where a request of this priority has to make room."""
    places = max_waiting * sum(load.healthy for load in loads)
    waiting = sum(load.waiting for load in loads if load.healthy)
    if waiting and waiting >= SHARES[priority] * places and SHARES[priority] < 1.0:
        raise ApiError(
            503,
            f"{waiting} requests wait, and those of priority {priority} make room: try again later",
            code="shed",
        )
