"""Watch a running application: its declared `args`, and replacements that cannot be scheduled.

Every deployment of methods has the application's resolved `args` as its `user_config`, and Ray
Serve's controller reports them. The ingress's own `user_config` is the operator's.

Ray Serve starts replacements before it stops the replicas that they replace. Where no GPU is free
all of them would wait forever. If one replica is stopped, its GPU goes to a waiting replacement,
and the GPU of that one's predecessor to the next.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ray.serve._private.common import DeploymentStatus, ReplicaState
from ray.serve.context import _get_global_client
from ray.serve.schema import DeploymentStatusOverview, ServeInstanceDetails

LOOK_SECONDS = 2.0
WAITING_SECONDS = 60.0
"""How long replacements may wait without any progress. An autoscaler may add a node."""
_UNSCHEDULED = "to be scheduled"
"""What Ray Serve says of a deployment whose replicas have waited for resources for 30 s."""


class Capacity:
    """Watch the deployments of an application for replacements that cannot start."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: frozenset[str] = frozenset()
        self._since = clock()
        self._turn = 0

    def wanted(self, deployments: Mapping[str, DeploymentStatusOverview]) -> str | None:
        """Return the deployment one of whose replicas should end now, None if none should."""
        updated = {n: d for n, d in deployments.items() if d.status is DeploymentStatus.UPDATING}
        waiting = frozenset(name for name, one in updated.items() if _UNSCHEDULED in one.message)
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


class Declared(NamedTuple):
    """The active `args`, and the deployment one of whose replicas should end now."""

    args: Mapping[str, Any]
    crowded: str | None


def look(application: str, ingress: str, replica: str, capacity: Capacity) -> Declared | None:
    """Return what is declared; None without a Serve configuration. Blocks on Ray Serve.

    Only the first ingress reports replacements that cannot be scheduled. ingress: the name of the
    deployment. replica: the id of the caller's replica of it.
    """
    client = _get_global_client()
    assert client is not None  # a replica has a controller
    details = ServeInstanceDetails(**client.get_serve_details())
    deployments = details.applications[application].deployments
    declared = [one.deployment_config.user_config for n, one in deployments.items() if n != ingress]
    if not declared or not isinstance(declared[0], Mapping):
        return None
    replicas = deployments[ingress].replicas
    running = [one.replica_id for one in replicas if one.state is ReplicaState.RUNNING]
    crowded = capacity.wanted(details._get_status().applications[application].deployments)
    first = min(running, default=None) == replica
    return Declared(declared[0], crowded if first else None)
