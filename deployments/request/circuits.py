"""The methods' circuit breakers, as this ingress sees them."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from deployments.metrics import Metrics

CircuitState = Literal["closed", "half_open", "open"]


CONSECUTIVE_FAILURES = 5
"""Failures in a row that open a circuit."""
FAILURE_SHARE = 0.5
"""Share of the window's answers that also opens it, once there are WINDOW_ANSWERS."""
WINDOW_SECONDS = 30.0
WINDOW_ANSWERS = 20
PAUSE_SECONDS = 5.0
"""Pause after a failure before one request is tried."""
PARTS = 30
"""Parts of the window in which answers are counted together, so that a response costs the same at
any number of responses a second."""


class Outcomes(NamedTuple):
    """Answers that ended in one part of the window. row: failures after the last other response."""

    began: float
    answers: int = 0
    failures: int = 0
    row: int = 0


@dataclass(frozen=True)
class Circuit:
    """Recent answers of one method. Times are seconds on one monotonic clock.

    outcomes: of the window's parts with responses. opened: when the circuit opened; None while it
    is closed. trial: when the trial was sent.

    A circuit opens when answers keep failing. After a pause a single request is sent on trial: an
    answer closes the circuit, a failure opens it again.
    """

    outcomes: tuple[Outcomes, ...] = ()
    opened: float | None = None
    trial: float | None = None


def circuit_state(circuit: Circuit, now: float) -> CircuitState:
    """Return the circuit's state; half-open is an open circuit whose pause is over."""
    if circuit.opened is None:
        return "closed"
    return "open" if now < circuit.opened + PAUSE_SECONDS else "half_open"


def admits(circuit: Circuit, now: float) -> bool:
    """Return whether a request may be sent now; a half-open circuit takes one at a time."""
    state = circuit_state(circuit, now)
    return state == "closed" or (state == "half_open" and circuit.trial is None)


def sent(circuit: Circuit, now: float) -> Circuit:
    """Return the circuit after a request that `admits` allowed."""
    if circuit_state(circuit, now) == "half_open":
        return replace(circuit, trial=now)
    return circuit


def ended(circuit: Circuit, since: float, failed: bool | None, now: float) -> Circuit:
    """Return the circuit after the response to a request sent at `since`.

    failed: None if the response says nothing about the method: the client left, the line was full,
    the deadline passed. While the circuit is not closed only the trial counts, because earlier
    answers are older than the failure.
    """
    if circuit.opened is not None:
        if circuit.trial is None or since < circuit.trial:
            return circuit
        if failed is None:
            return replace(circuit, trial=None)
        return Circuit(opened=now) if failed else Circuit()
    if failed is None:
        return circuit
    outcomes = _counted(circuit.outcomes, now, failed)
    return Circuit(outcomes, opened=now if _broken(outcomes) else None)


def _counted(outcomes: Sequence[Outcomes], now: float, failed: bool) -> tuple[Outcomes, ...]:
    recent = [one for one in outcomes if one.began > now - WINDOW_SECONDS]
    if not recent or now - recent[-1].began >= WINDOW_SECONDS / PARTS:
        recent.append(Outcomes(now))
    began, answers, failures, row = recent.pop()
    return (*recent, Outcomes(began, answers + 1, failures + failed, row + 1 if failed else 0))


def _broken(outcomes: Sequence[Outcomes]) -> bool:
    row = 0
    for one in reversed(outcomes):
        row += one.row
        if one.row < one.answers:
            break
    answers, failures = (sum(one[i] for one in outcomes) for i in (1, 2))
    enough = answers >= WINDOW_ANSWERS
    return row >= CONSECUTIVE_FAILURES or (enough and failures >= FAILURE_SHARE * answers)


_LEVEL: dict[CircuitState, int] = {"closed": 0, "half_open": 1, "open": 2}


class Circuits:
    """Keep one circuit breaker per method, by the functions above."""

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
        return {m: circuit_state(c, now) for m, c in self._circuits.items()}

    def resting(self) -> frozenset[str]:
        """Return the methods that are disabled after failures."""
        return frozenset(m for m in self._circuits if not self.admits(m))

    def admits(self, method: str) -> bool:
        return admits(self._circuits[method], self._clock())

    def sent(self, method: str) -> float:
        """Count a request that goes to `method`. Return the time that `ended` takes as `since`."""
        now = self._clock()
        self._circuits[method] = sent(self._circuits[method], now)
        self._publish(method)
        return now

    def ended(self, method: str, since: float, failed: bool | None) -> None:
        """Count the end of a request that was sent at `since`; see the function `ended`."""
        was = self._circuits[method]
        self._circuits[method] = ended(was, since, failed, self._clock())
        if self._circuits[method].opened not in (None, was.opened):
            self._metrics.circuit_opened.inc(tags={"method": method})
        self._publish(method)

    def _publish(self, method: str) -> None:
        state = circuit_state(self._circuits[method], self._clock())
        self._metrics.circuit_state.set(_LEVEL[state], tags={"method": method})
