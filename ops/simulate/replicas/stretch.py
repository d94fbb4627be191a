"""Decode steps of one batch, as one event of a simulation."""

from dataclasses import dataclass
from math import ceil, floor, sqrt

ALMOST = 1e-9
"""Share of a step by which a moment counts as the step's end."""


@dataclass(slots=True)
class Stretch:
    """So many steps in a row, 0 if there is none.

    since: when they began, in seconds of work. first: seconds of the first step. longer: how many
    more each next one takes.
    """

    steps: int = 0
    since: float = 0.0
    first: float = 0.0
    longer: float = 0.0

    @property
    def end(self) -> float:
        """Return when the last step is over, in seconds of work."""
        return (
            self.since + self.steps * self.first + self.longer * self.steps * (self.steps - 1) / 2
        )

    def done(self, work: float) -> int:
        """Return how many steps are over at this time."""
        return min(self.steps, floor(self._fitting(work) + ALMOST)) if self.steps else 0

    def shortened(self, work: float) -> bool:
        """End with the step that is under way at this time. Return whether that changes it."""
        steps = min(self.steps, max(1, ceil(self._fitting(work) - ALMOST))) if self.steps else 0
        changed, self.steps = steps < self.steps, steps
        return changed

    def _fitting(self, work: float) -> float:
        """Return how many steps fit in until then."""
        seconds = work - self.since
        if self.longer * seconds < ALMOST * self.first**2:
            return seconds / self.first
        half = self.first - self.longer / 2.0
        return (sqrt(half * half + 2.0 * self.longer * seconds) - half) / self.longer
