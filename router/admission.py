"""What may be sent where: deadlines and circuit breakers, as pure functions of the time given.

A method's circuit opens where its answers keep failing, so that prompts do not find out one by
one. After a pause a single request is sent on trial: an answer closes the circuit, a failure opens
it again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from schemas import CircuitConfig

CircuitState = Literal["closed", "half_open", "open"]


@dataclass(frozen=True)
class Circuit:
    """What is known of one method's answers. Times are seconds on one monotonic clock.

    outcomes: when each answer of the window ended, and whether it failed. opened: since when
    nothing is sent; None where the circuit is closed. trial: when the trial was sent.
    """

    outcomes: tuple[tuple[float, bool], ...] = ()
    opened: float | None = None
    trial: float | None = None


def circuit_state(circuit: Circuit, now: float, config: CircuitConfig) -> CircuitState:
    """Half-open is an open circuit whose pause is over."""
    if circuit.opened is None:
        return "closed"
    return "open" if now < circuit.opened + config.pause_seconds else "half_open"


def admits(circuit: Circuit, now: float, config: CircuitConfig) -> bool:
    """Whether a request may be sent now: in a half-open circuit one at a time."""
    state = circuit_state(circuit, now, config)
    return state == "closed" or (state == "half_open" and circuit.trial is None)


def sent(circuit: Circuit, now: float, config: CircuitConfig) -> Circuit:
    """After a request that `admits` let through."""
    if circuit_state(circuit, now, config) == "half_open":
        return replace(circuit, trial=now)
    return circuit


def ended(
    circuit: Circuit, since: float, failed: bool | None, now: float, config: CircuitConfig
) -> Circuit:
    """After the answer to a request sent at `since`.

    failed: None where the answer says nothing of the method: the client left, the line was full,
    the deadline passed. While the circuit is not closed only the trial counts, since answers from
    before it opened say nothing of the present.
    """
    if circuit.opened is not None:
        if circuit.trial is None or since < circuit.trial:
            return circuit
        if failed is None:
            return replace(circuit, trial=None)
        return Circuit(opened=now) if failed else Circuit()
    if failed is None:
        return circuit
    recent = [one for one in circuit.outcomes if one[0] > now - config.window_seconds]
    outcomes = (*recent, (now, failed))
    return Circuit(outcomes, opened=now if _broken(outcomes, config) else None)


def _broken(outcomes: Sequence[tuple[float, bool]], config: CircuitConfig) -> bool:
    failures = [failed for _, failed in outcomes]
    last = failures[-config.consecutive_failures :]
    if len(last) == config.consecutive_failures and all(last):
        return True
    return len(failures) >= config.window_answers and sum(failures) >= config.failure_share * len(
        failures
    )


def in_time(
    methods: Sequence[str], seconds: Mapping[str, float], deadline_seconds: float | None
) -> list[str]:
    """The methods predicted to finish before the deadline; where there is none, the soonest."""
    if deadline_seconds is None:
        return list(methods)
    meeting = [name for name in methods if seconds[name] <= deadline_seconds]
    return meeting or [min(methods, key=lambda name: seconds[name])]
