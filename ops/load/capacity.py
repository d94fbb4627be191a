"""Upper bounds on the requests a second that replicas can finish under any routing."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import linprog

from ops.harness.boundary import InputError
from ops.load.arrivals import Floats

Layout = Sequence[tuple[str, ...]]
"""The methods of each replica, one entry a replica."""


def most_requests_per_s(layout: Layout, seconds: Mapping[str, Floats], weights: Floats) -> float:
    """Return the largest rate at which some assignment of requests to replicas keeps up.

    seconds: by method, a replica's seconds per request of each kind [k]. weights [k]: each kind's
    share of the requests; they sum to 1. Solves a linear program over the rates at which kinds go
    to replicas of the same methods; a replica of several methods counts with the fastest of them.
    Raises InputError if the seconds have no solution.
    """
    groups = Counter(layout)
    costs = np.asarray([np.min([seconds[m] for m in names], axis=0) for names in groups])
    g, k = costs.shape
    # variables: the rate of kind j at group i (i * k + j), and last the whole rate
    served = np.hstack([np.tile(np.eye(k), g), -weights[:, None]])
    busy = np.zeros((g, g * k + 1))
    for i in range(g):
        busy[i, i * k : (i + 1) * k] = costs[i]
    goal = np.zeros(g * k + 1)
    goal[-1] = -1.0
    solved = linprog(goal, busy, list(groups.values()), served, np.zeros(k))
    if solved.status != 0:
        raise InputError(f"no bound on requests per second: check the seconds ({solved.message})")
    return float(solved.x[-1])
