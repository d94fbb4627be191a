"""Time on cores that many share: wall seconds, and seconds of work."""

from math import inf


class Cores:
    """While more threads are at work than there are cores, all are as much slower, and more so the
    more there are: who takes turns finds caches full of the others'.

    Everybody's work goes on at the same pace, so that one clock tells it for all: what takes so
    many seconds of work is due when `work` has grown by as many.
    """

    def __init__(self, count: float | None, crowding: float = 0.0) -> None:
        """count: None for as many as there are threads. crowding: share by which all work takes
        longer for each thread that is more than cores."""
        self._count = inf if count is None else float(count)
        self._crowding = crowding
        self.now = 0.0
        """Wall seconds."""
        self.work = 0.0
        """Seconds of work of a thread that has been at work all the time."""
        self.busy = 0.0
        """Threads at work, from now on; a part of one that is at work so much of the time."""

    def at(self, now: float) -> None:
        """It is so late; who was at work has gone on until then."""
        if self._count == inf:
            self.work = now
        else:
            self.work += (now - self.now) * self._pace
        self.now = now

    def when(self, work: float) -> float:
        """The moment at which so much is done, if nobody else begins or stops before."""
        if self._count == inf:
            return work
        return self.now + max(0.0, work - self.work) / self._pace

    @property
    def _pace(self) -> float:
        """Seconds of work a second."""
        if self.busy <= self._count:
            return 1.0
        return self._count / self.busy / (1.0 + self._crowding * (self.busy - self._count))
