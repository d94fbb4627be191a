"""What is to happen in a simulation, in its order."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

from ops.simulate.cores import Cores
from ops.simulate.workload import NEVER

Event = tuple[float, int, Callable[..., None], tuple[Any, ...]]
"""Its due time, its order among simultaneous events, and its action."""


class Agenda:
    """Events that are due at a time, and others once so many seconds of work are done."""

    def __init__(self, cores: Cores) -> None:
        self._cores, self._order = cores, count()
        self._events: list[Event] = []
        self._work: list[Event] = []

    def at(self, moment: float, action: Callable[..., None], *given: Any) -> None:
        """Call `action(now, *given)` at a time."""
        heappush(self._events, (moment, next(self._order), action, given))

    def after(self, work: float, action: Callable[..., None], *given: Any) -> None:
        """Call `action(now, *given)` once the cores' clock of work has reached `work`."""
        heappush(self._work, (work, next(self._order), action, given))

    def until(self, moment: float) -> None:
        """Do everything that is due by a moment."""
        events, work, cores = self._events, self._work, self._cores
        while True:
            worked = cores.when(work[0][0]) if work else NEVER
            first = work if worked < NEVER and (not events or worked < events[0][0]) else events
            if not first:
                break
            now = worked if first is work else first[0][0]
            if now > moment:
                break
            cores.at(now)
            _, _, action, given = heappop(first)
            action(now, *given)
        if moment != NEVER:
            cores.at(moment)
