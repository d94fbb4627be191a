"""The methods' circuit breakers, as this ingress sees them."""

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from deployments.metrics import Metrics

CircuitState = Literal["closed", "half_open", "open"]
_LEVEL: dict[CircuitState, int] = {"closed": 0, "half_open": 1, "open": 2}

CONSECUTIVE_FAILURES = 5
"""Failures in a row that open a circuit."""
FAILURE_SHARE = 0.5
"""Share of the window's answers that also opens it, once there are WINDOW_ANSWERS."""
WINDOW_SECONDS = 30.0
WINDOW_ANSWERS = 20
PAUSE_SECONDS = 5.0
"""Pause after a failure before one request is tried."""


@dataclass
class Circuit:
    """Judge one method by its recent answers. Times are seconds on one monotonic clock.

    A circuit opens when answers keep failing. After a pause a single request is sent on trial: an
    answer closes the circuit, a failure opens it again.

    opened: when the circuit opened; None while it is closed. trial: when the trial was sent.
    answers: of the window, when each ended and whether it failed; `failures` of them failed, the
    last `row` in a row.
    """

    opened: float | None = None
    trial: float | None = None
    answers: deque[tuple[float, bool]] = field(default_factory=deque)
    failures: int = 0
    row: int = 0

    def state(self, now: float) -> CircuitState:
        """Return the state; half-open is an open circuit whose pause is over."""
        if self.opened is None:
            return "closed"
        return "open" if now < self.opened + PAUSE_SECONDS else "half_open"

    def admits(self, now: float) -> bool:
        """Return whether a request may be sent now; a half-open circuit takes one at a time."""
        state = self.state(now)
        return state == "closed" or (state == "half_open" and self.trial is None)

    def sent(self, now: float) -> None:
        """Count a request that `admits` allowed."""
        if self.state(now) == "half_open":
            self.trial = now

    def ended(self, since: float, failed: bool | None, now: float) -> None:
        """Count the response to a request sent at `since`.

        failed: None if the response says nothing about the method: the client left, the line was
        full, the deadline passed. While the circuit is not closed only the trial counts, because
        earlier answers are older than the failure.
        """
        if self.opened is None:
            if failed is not None and self._is_broken_by(failed, now):
                self._reset(now)
        elif self.trial is not None and since >= self.trial:
            self.trial = None
            if failed is not None:
                self._reset(now if failed else None)

    def _reset(self, opened: float | None) -> None:
        """Open or close the circuit, and forget what led to it."""
        self.opened, self.failures, self.row = opened, 0, 0
        self.answers.clear()

    def _is_broken_by(self, failed: bool, now: float) -> bool:
        self.answers.append((now, failed))
        self.failures += failed
        while self.answers[0][0] <= now - WINDOW_SECONDS:
            self.failures -= self.answers.popleft()[1]
        self.row = min(self.row + 1, len(self.answers)) if failed else 0
        enough = len(self.answers) >= WINDOW_ANSWERS
        often = enough and self.failures >= FAILURE_SHARE * len(self.answers)
        return often or self.row >= CONSECUTIVE_FAILURES


class Circuits:
    """Keep one circuit breaker per method."""

    def __init__(
        self,
        methods: Iterable[str],
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._circuits = {method: Circuit() for method in methods}
        for method in self._circuits:
            self._publish(method)

    def states(self) -> dict[str, CircuitState]:
        now = self._clock()
        return {method: circuit.state(now) for method, circuit in self._circuits.items()}

    def resting(self) -> frozenset[str]:
        """Return the methods that are disabled after failures."""
        return frozenset(m for m in self._circuits if not self.admits(m))

    def admits(self, method: str) -> bool:
        return self._circuits[method].admits(self._clock())

    def sent(self, method: str) -> float:
        """Count a request that goes to `method`. Return the time that `ended` takes as `since`."""
        now = self._clock()
        self._circuits[method].sent(now)
        self._publish(method)
        return now

    def ended(self, method: str, since: float, failed: bool | None) -> None:
        """Count the end of a request that was sent at `since`, as `Circuit.ended`."""
        self._circuits[method].ended(since, failed, self._clock())
        self._publish(method)

    def _publish(self, method: str) -> None:
        state = self._circuits[method].state(self._clock())
        self._metrics.circuit_state.set(_LEVEL[state], tags={"method": method})
