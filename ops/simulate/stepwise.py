"""A simulated replica that chooses a draft at every step."""

from dataclasses import replace
from heapq import heapify
from typing import Any

from ops.simulate.controller import Controller, Row
from ops.simulate.outcomes import Usage
from ops.simulate.replica import Replica
from ops.simulate.workload import Request


class StepwiseReplica(Replica):
    """A replica whose controller chooses a draft at every step.

    Each step is an event, and the last one's result decides what the next verifies. Requests come
    with plain decoding's path, which has the most steps.
    """

    def __init__(self, *replica: Any, controller: Controller) -> None:
        """replica: as of any."""
        super().__init__(*replica)
        self._controller = controller
        self._known: dict[int, Row] = {}

    def usage(self, there: float) -> Usage:
        """And what its controller did."""
        decided = self._controller
        return replace(
            super().usage(there),
            deciding=decided.deciding_seconds,
            drafted_by=dict(decided.drafted_by),
        )

    def _begin_steps(self, _more: bool) -> None:
        requests = [request for _, _, request in self._running]
        self._known = {one.number: self._row(one) for one in requests}
        self._first = self._controller.step(list(self._known.values()))
        self._stretch, self._longer = 1, 0.0
        self._rate = float(sum(len(row.new) for row in self._known.values()))
        for request in requests:
            if self._known[request.number].ended:
                request.end = self._steps + 1
        self._running = [(one.end, one.number, one) for one in requests]
        heapify(self._running)

    def _out(self, request: Request) -> float:
        row = self._known.get(request.number)
        if row is None:
            return 1.0
        return float(row.said - request.said - (0 if self._done() else len(row.new)))

    def _row(self, request: Request) -> Row:
        known = self._known.get(request.number)
        if known is not None:
            return known
        answer = request.answer
        assert answer is not None
        first = answer.prompt_tokens + request.said
        return Row(
            f"{self.name}/{request.number}",
            answer,
            request.said + 1,
            answer.tokens[first : first + 1],
        )
