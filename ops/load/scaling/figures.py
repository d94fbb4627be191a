"""What the replicas of a run cost, and what was asked of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ops.load.arrivals import Floats

BIN_SECONDS = 5.0
"""Interval over which demand is averaged."""


@dataclass(frozen=True)
class Count:
    """Replicas at one moment, `at` seconds into the run. `starting`: all that neither run nor
    stop."""

    at: float
    running: int
    stopping: int
    starting: int

    @property
    def wanted(self) -> int:
        """As many as the policy wants."""
        return self.running + self.starting


def replica_figures(counts: Sequence[Count], seconds: float) -> dict[str, Any]:
    """Return the figures of replicas over a run of `seconds`.

    Each count holds until the next. A replica has its GPU while it starts and stops.
    """
    changes = [after.wanted - before.wanted for before, after in pairwise(counts)]
    ends = [*(count.at for count in counts[1:]), seconds]
    held = [
        (c.wanted + c.stopping) * max(0.0, end - c.at) for c, end in zip(counts, ends, strict=True)
    ]
    gpu_seconds = sum(held) + (counts[0].wanted + counts[0].stopping) * counts[0].at
    return {
        "gpu_seconds": gpu_seconds,
        "mean_replicas": gpu_seconds / seconds,
        "most_replicas": max(count.wanted for count in counts),
        "scaled_up": sum(change > 0 for change in changes),
        "scaled_down": sum(change < 0 for change in changes),
        "replicas": [
            {
                "at": round(c.at, 2),
                "running": c.running,
                "starting": c.starting,
                "stopping": c.stopping,
            }
            for c in _changed(counts)
        ],
    }


def demand_figures(arrivals: Floats, work: Floats, seconds: float) -> dict[str, Any]:
    """Return the demand per second, in replicas, by bins of BIN_SECONDS.

    arrivals: [n] times. work: [n] each request's seconds of a full replica. seconds: of arrivals.
    """
    edges = np.arange(0.0, seconds + BIN_SECONDS, BIN_SECONDS)
    offered, _ = np.histogram(arrivals, edges, weights=work)
    return {
        "bin_seconds": BIN_SECONDS,
        "work_seconds": float(work.sum()),
        "mean_replicas": float(work.sum() / seconds),
        "replicas": [round(float(value), 3) for value in offered / BIN_SECONDS],
    }


def _changed(counts: Sequence[Count]) -> list[Count]:
    """The first count, and every one that differs from the one before."""

    def states(count: Count) -> tuple[int, int, int]:
        return count.running, count.starting, count.stopping

    later = [after for before, after in pairwise(counts) if states(after) != states(before)]
    return [*counts[:1], *later]
