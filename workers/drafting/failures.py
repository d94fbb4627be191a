"""Drafters that fail: how often each did, and when it is tried again."""

import logging
from collections import Counter

log = logging.getLogger(__name__)

IN_A_ROW = 3
"""Failed steps in a row after which a drafter rests."""
RESTS = 256
"""Steps that it rests, of those in which it would have drafted."""


class Failures:
    """Counts the failures of an engine's drafters, by name."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """By drafter the failures since the engine was loaded."""
        self._in_a_row: Counter[str] = Counter()
        self._rests: Counter[str] = Counter()

    def rests(self, drafter: str) -> bool:
        """Return whether a drafter rests in this step; counts the step. After the rest it is tried
        once, and rests again if that fails."""
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

    def drafted(self, drafter: str) -> None:
        """A step's drafting went well."""
        self._in_a_row[drafter] = 0
