"""Which deployment gives up a replica if replacements wait for resources that only replicas have.

Ray Serve starts replacements before it stops the replicas that they replace. Where no GPU is free
all of them would wait for ever. Once one replica has ended, its GPU passes from method to method:
each replacement that starts frees that of its predecessor.
"""

import time
from collections.abc import Callable, Mapping

from ray.serve._private.common import DeploymentStatus, ReplicaState
from ray.serve.schema import DeploymentStatusOverview

WAITING_SECONDS = 60.0
"""Time in which replacements wait and nothing else moves. An autoscaler may add a node."""
_NO_ROOM = "to be scheduled"
"""What Ray Serve says of a deployment whose replicas have waited for resources for 30 s."""


class Room:
    """Watch the deployments of an application for replacements that cannot start."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: frozenset[str] = frozenset()
        self._since = clock()
        self._turn = 0

    def wanted(self, deployments: Mapping[str, DeploymentStatusOverview]) -> str | None:
        """Return the deployment one of whose replicas should end now, None if none should."""
        updated = {n: d for n, d in deployments.items() if d.status is DeploymentStatus.UPDATING}
        waiting = frozenset(name for name, one in updated.items() if _NO_ROOM in one.message)
        moves = waiting != self._waiting or updated.keys() != waiting
        stops = any(ReplicaState.STOPPING in one.replica_states for one in deployments.values())
        now = self._clock()
        if moves or stops or not waiting:
            self._waiting, self._since = waiting, now
        if now - self._since < WAITING_SECONDS:
            return None
        self._since = now
        self._turn += 1
        return sorted(waiting)[self._turn % len(waiting)]
