"""What routing would have won while the default method answers (shadow mode)."""

import math
from collections import Counter
from typing import Any, Self

from schemas import Observation, ObservedReport

SUMS = ("served", "routed", "predicted", "served_squared", "both", "routed_squared")


class ShadowTraffic:
    """Sums over the answers that the default method gave instead of the router's choice.

    The speedup R is a ratio of sums, with the standard error of a ratio estimator (Cochran,
    Sampling Techniques, section 6.4): the root of the sum of (s - R r)^2 over n - 1 and n, divided
    by the mean of r, where an answer took s seconds and would have taken r.
    """

    def __init__(self) -> None:
        self._sums = dict.fromkeys(SUMS, 0.0)
        self._answers = 0
        self._elsewhere: Counter[str] = Counter()

    def add(self, observation: Observation) -> None:
        """Count an answer if it was given in shadow mode."""
        wish, stats = observation.instead, observation.stats
        if wish is None:
            return
        served = stats.total_seconds - stats.stalled_seconds
        routed = served * wish.predicted_seconds / wish.served_predicted_seconds
        self._answers += 1
        if wish.method != stats.method:
            self._elsewhere[wish.method] += 1
        added = (
            *(served, routed, wish.served_predicted_seconds),
            *(served**2, served * routed, routed**2),
        )
        for name, value in zip(SUMS, added, strict=True):
            self._sums[name] += value

    def report(self) -> ObservedReport | None:
        """Return the report, or None without an answer."""
        if not self._answers:
            return None
        n, s = self._answers, self._sums
        speedup = s["served"] / s["routed"] if s["routed"] else None
        error = None
        if speedup is not None and n > 1:
            square = (
                s["served_squared"] - 2 * speedup * s["both"] + speedup**2 * s["routed_squared"]
            )
            error = math.sqrt(max(0.0, square) / (n - 1) / n) / (s["routed"] / n)
        return ObservedReport(
            answers=n,
            elsewhere=dict(self._elsewhere.most_common()),
            served_seconds=s["served"],
            routed_seconds=s["routed"],
            speedup=speedup,
            standard_error=error,
            served_over_predicted=s["served"] / s["predicted"] if s["predicted"] else None,
        )

    def state(self) -> dict[str, Any]:
        """Return JSON values for `restored`."""
        return {"answers": self._answers, "elsewhere": dict(self._elsewhere), "sums": self._sums}

    @classmethod
    def restored(cls, state: dict[str, Any] | None) -> Self:
        """Continue from a state, or from nothing."""
        made = cls()
        if state is not None:
            made._answers = int(state["answers"])
            made._elsewhere = Counter(state["elsewhere"])
            made._sums = {name: float(state["sums"][name]) for name in SUMS}
        return made
