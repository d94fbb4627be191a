"""The ingresses' own work on requests, which takes time on shared cores."""

from collections import deque
from collections.abc import Callable
from typing import Any

from ops.simulate.agenda import Agenda
from ops.simulate.cores import Cores


class IngressWork:
    """A line of pieces of work. Each ingress does one at a time."""

    def __init__(self, agenda: Agenda, cores: Cores, ingresses: float) -> None:
        """ingresses: how many do it; infinite if nothing waits for them."""
        self._agenda, self._cores, self._free = agenda, cores, ingresses
        self._line: deque[tuple[float, Callable[..., None], tuple[Any, ...]]] = deque()

    def add(self, now: float, work: float, then: Callable[..., None], *given: Any) -> None:
        """Call `then(now, *given)` after `work` seconds of an ingress, when its turn comes."""
        if self._free:
            self._begin(now, work, then, given)
        else:
            self._line.append((work, then, given))

    def _begin(self, now: float, work: float, then: Callable[..., None], given: Any) -> None:
        if work == 0.0:
            then(now, *given)
            return
        self._free -= 1
        self._cores.busy += 1.0
        self._agenda.after(self._cores.work + work, self._done, then, given)

    def _done(self, now: float, then: Callable[..., None], given: tuple[Any, ...]) -> None:
        self._free += 1
        self._cores.busy -= 1.0
        then(now, *given)
        while self._line and self._free:
            self._begin(now, *self._line.popleft())
