"""Failures of drafters: how often each failed, and when it is tried again."""

import logging
from collections import Counter, defaultdict
from math import inf

log = logging.getLogger(__name__)

IN_A_ROW = 3
"""Failed steps in a row after which a drafter is disabled."""
RESTS = 256
"""Steps for which it is disabled, of those in which it would have drafted."""


class Failures:
    """Count the failures of an engine's drafters by name, and disable drafters that keep
    failing."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Failures of each drafter since the engine was loaded."""
        self._in_a_row: Counter[str] = Counter()
        self._rests: defaultdict[str, float] = defaultdict(float)

    def rests(self, drafter: str) -> bool:
        """Return whether a drafter is disabled in this step, and count the step. Afterwards it
        is tried once, and disabled again if that fails."""
        if self._rests[drafter] <= 0:
            return False
        self._rests[drafter] -= 1
        return True

    def failed(self, drafter: str, error: Exception) -> None:
        """Count and log a failure."""
        self.counts[drafter] += 1
        self._in_a_row[drafter] += 1
        log.error("drafter %s failed: %s", drafter, error, exc_info=error)
        if self._in_a_row[drafter] >= IN_A_ROW:
            self._rests[drafter] = RESTS
            log.error(
                "drafter %s is disabled for %d steps after %d failures in a row",
                *(drafter, RESTS, self._in_a_row[drafter]),
            )

    def unusable(self, drafter: str, error: Exception) -> None:
        """Count and log why a drafter cannot be used, and disable it for good."""
        self.counts[drafter] += 1
        self._rests[drafter] = inf
        log.error("drafter %s is disabled: %s", drafter, error)

    def drafted(self, drafter: str) -> None:
        """Note a step in which the drafter did not fail."""
        self._in_a_row[drafter] = 0
