"""The methods' circuit breakers, as this ingress sees them."""

import time
from collections.abc import Callable, Iterable

from deployments.metrics import Metrics
from router.admission import Circuit, CircuitState, admits, circuit_state, ended, sent
from schemas import CircuitConfig

_LEVEL: dict[CircuitState, int] = {"closed": 0, "half_open": 1, "open": 2}


class Circuits:
    """One circuit per method; `router.admission` says how each goes on."""

    def __init__(
        self,
        methods: Iterable[str],
        config: CircuitConfig,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._metrics = metrics
        self._clock = clock
        self._circuits = {method: Circuit() for method in methods}
        for method in self._circuits:
            self._publish(method)

    def states(self) -> dict[str, CircuitState]:
        now = self._clock()
        return {m: circuit_state(c, now, self._config) for m, c in self._circuits.items()}

    def resting(self) -> frozenset[str]:
        """The methods to which nothing may be sent now."""
        return frozenset(m for m in self._circuits if not self.admits(m))

    def admits(self, method: str) -> bool:
        return admits(self._circuits[method], self._clock(), self._config)

    def sent(self, method: str) -> float:
        """A request goes to `method`; gives the time that `ended` wants back."""
        now = self._clock()
        self._circuits[method] = sent(self._circuits[method], now, self._config)
        self._publish(method)
        return now

    def ended(self, method: str, since: float, failed: bool | None) -> None:
        """The answer to the request sent at `since` has ended; see `router.admission.ended`."""
        was = self._circuits[method]
        self._circuits[method] = ended(was, since, failed, self._clock(), self._config)
        if self._circuits[method].opened not in (None, was.opened):
            self._metrics.circuit_opened.inc(tags={"method": method})
        self._publish(method)

    def _publish(self, method: str) -> None:
        state = circuit_state(self._circuits[method], self._clock(), self._config)
        self._metrics.circuit_state.set(_LEVEL[state], tags={"method": method})
