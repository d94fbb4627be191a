"""Time on shared cores, in wall seconds and in seconds of work."""

from dataclasses import dataclass
from math import inf

from ops.simulate.costs import StepCosts
from schemas import EngineConfig


class Cores:
    """A clock of work on shared cores.

    While more threads work than there are cores, all slow down equally, by more than their share
    since their caches evict each other. All work proceeds at the same speed, so one clock serves
    all: work of some seconds is due when `work` has grown by as many.
    """

    def __init__(self, count: float | None, crowding: float = 0.0) -> None:
        """Set the number of cores.

        count: None for one per thread. crowding: relative slow-down for each thread beyond them.
        """
        self._count = inf if count is None else float(count)
        self._crowding = crowding
        self.now = 0.0
        """Wall seconds."""
        self.work = 0.0
        """Seconds of work of a thread that has been at work all the time."""
        self.busy = 0.0
        """Threads at work, from now on; a part of one that is at work so much of the time."""

    def at(self, now: float) -> None:
        """Advance the clock to wall time `now`."""
        if self._count == inf:
            self.work = now
        else:
            self.work += (now - self.now) * self._pace
        self.now = now

    def when(self, work: float) -> float:
        """Return the wall time at which this work is done if no thread starts or stops before."""
        if self._count == inf:
            return max(self.now, work)
        return self.now + max(0.0, work - self.work) / self._pace

    @property
    def _pace(self) -> float:
        """Seconds of work a second."""
        if self.busy <= self._count:
            return 1.0
        return self._count / self.busy / (1.0 + self._crowding * (self.busy - self._count))


@dataclass(frozen=True)
class Machine:
    """What all simulated replicas share. stream_seconds: as in `Overhead`. conversations: whether
    they keep the prompts of answers, for next turns. report_prefixes: and report them."""

    engine: EngineConfig
    costs: StepCosts
    cores: Cores
    stream_seconds: float = 0.0
    conversations: bool = False
    report_prefixes: bool = True
