"""Observations and load reports as they are sent, and requests in flight."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from deployments.request.in_flight import InFlight
from schemas import (
    DecodeRequest,
    DecodeStats,
    LoadReport,
    Observation,
    RoutingTable,
    SamplingParams,
)


def load(replica: str = "a", **fields) -> LoadReport:
    """Return the report of an idle replica of plain decoding, with `fields` changed."""
    idle = {"methods": ("naive",), "running": 0, "waiting": 0, "outstanding_tokens": 0}
    idle |= {"free_slots": 1000, "time": 0.0}
    return LoadReport.model_validate(idle | {"replica": replica} | fields)


def observation(identity: str, method: str = "naive", cluster: int = 0, **stats) -> Observation:
    """An answer of 33 tokens in 21 steps and a tenth of a second, unless `stats` says otherwise."""
    measured = {
        "request_id": identity,
        "method": method,
        "temperature": 0.0,
        "prompt_tokens": 10,
        "output_tokens": 33,
        "context_length": 43,
        "target_steps": 21,
        "decode_seconds": 0.1,
        "total_seconds": 0.11,
        "finish_reason": "stop",
    }
    return Observation(
        stats=DecodeStats.model_validate(measured | stats),
        cluster=cluster,
        fit_id="small",
        table_version=0,
        policy="test",
        reason="preferred",
        propensity=1.0,
        time=time.time(),
    )


def request(identity: str, method: str = "a", tokens: int = 50, **fields) -> DecodeRequest:
    """Return a request for an answer of at most so many tokens."""
    asked = {"prompt_token_ids": (1,) * 10, "sampling": SamplingParams(max_tokens=tokens)}
    return DecodeRequest(request_id=identity, method=method, **asked | fields)


class Flying(InFlight):
    """What is in flight, over reports that a test may change."""

    def __init__(self, *reports: LoadReport, table: RoutingTable | None = None) -> None:
        self.reports = list(reports)
        super().__init__(lambda: self.reports, lambda: table)


@contextmanager
def tracked(in_flight: InFlight, request: DecodeRequest) -> Iterator[None]:
    """Track a request during the block, until `ended` at the latest."""
    in_flight.begin(request)
    try:
        yield
    finally:
        in_flight.give_up(request.request_id)
