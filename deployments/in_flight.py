"""What this ingress has sent since the replicas last reported."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from schemas import DecodeRequest, LoadReport


class InFlight:
    """Requests under way, added to reports that are too old to know of them.

    Reports are up to half a second old; without this a burst of prompts would all go to the
    replica that was idle before it.
    """

    def __init__(self) -> None:
        self._sent: dict[str, tuple[float, DecodeRequest]] = {}

    @contextmanager
    def sent(self, request: DecodeRequest) -> Iterator[None]:
        """`request` is under way until the block ends."""
        self._sent[request.request_id] = (time.time(), request)
        try:
            yield
        finally:
            self._sent.pop(request.request_id, None)

    def added_to(self, loads: Sequence[LoadReport]) -> list[LoadReport]:
        """The reports with each unseen request on its method's least loaded replica."""
        reports = list(loads)
        for sent, request in self._sent.values():
            candidates = [
                (report.outstanding_tokens, i)
                for i, report in enumerate(reports)
                if report.healthy and report.time < sent and request.method in report.methods
            ]
            if candidates:
                _, i = min(candidates)
                reports[i] = _with(reports[i], request)
        return reports


def _with(report: LoadReport, request: DecodeRequest) -> LoadReport:
    tokens = request.sampling.max_tokens
    slots = len(request.prompt_token_ids) + tokens
    return report.model_copy(
        update={
            "running": report.running + 1,
            "outstanding_tokens": report.outstanding_tokens + tokens,
            "free_slots": max(0, report.free_slots - slots),
        }
    )
