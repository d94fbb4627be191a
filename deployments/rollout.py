"""What each part of the application reads of the configuration, and how a change is rolled out.

Ray Serve restarts every deployment when any of an application's `args` changes (Ray 2.60). Here a
deployment's version comes from the settings that it reads, so that a change restarts only those
that it concerns.

Every deployment of methods has the application's resolved `args` as its `user_config`, and Ray
Serve's controller reports them. The ingress's own `user_config` is the operator's.
"""

import hashlib
import json
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from ray import serve
from ray.serve._private.common import DeploymentStatus, ReplicaState
from ray.serve._private.config import DeploymentConfig
from ray.serve.context import _get_global_client
from ray.serve.schema import DeploymentStatusOverview, ServeInstanceDetails

from deployments.configuration import LIVE_FIELDS
from schemas import AppConfig, EngineConfig, FeedbackConfig, MethodDeployment, RouterConfig

SURGE_PERCENT = 100
"""Have the replacements of all replicas start before the replicas that they replace stop."""

_OF_RAY = (
    *("host", "port", "ingress_replicas", "ingress_num_cpus"),
    "ingress_max_replicas_per_node",
)
"""Fields of `http` that only Ray Serve reads, as options of the ingress's deployment."""


def read_by_method(config: AppConfig, methods: Collection[str]) -> AppConfig:
    """Return the configuration with what the replicas of `methods` read, and defaults else."""
    own = [
        _named(method).model_copy(update=_placed(method))
        for method in config.methods
        if method.name in methods
    ]
    feedback = config.feedback
    kept: dict[str, Any] = {}
    if feedback.drafter_training:
        kept = {"drafter_training": True, "state_uri": feedback.state_uri}
    return AppConfig.model_construct(
        bundle=config.bundle,
        layout=config.layout,
        methods=tuple(own),
        shared=MethodDeployment(name="shared", **_placed(config.shared)),
        engine=config.engine,
        router=RouterConfig(routing=config.router.routing, encoder=config.router.encoder),
        feedback=FeedbackConfig(**kept),
    )


def read_by_learning(config: AppConfig) -> AppConfig:
    """Return the configuration with what the actors for learning read, and defaults else."""
    return AppConfig.model_construct(
        bundle=config.bundle,
        layout=config.layout,
        methods=tuple(map(_named, config.methods)),
        engine=config.engine,
        router=_without(config.router, LIVE_FIELDS["router"]),
        feedback=config.feedback,
    )


def read_by_ingress(config: AppConfig) -> AppConfig:
    """Return the configuration with what an ingress reads and cannot take over while it runs."""
    http = _without(config.http, (*LIVE_FIELDS["http"], *_OF_RAY))
    idle = {"min_replicas": 0}
    methods = [
        _named(method).model_copy(update={} if method.min_replicas else idle)
        for method in config.methods
    ]
    shared = MethodDeployment(name="shared", **({} if config.shared.min_replicas else idle))
    update = {"http": http, "methods": tuple(methods), "shared": shared}
    return read_by_learning(config).model_copy(update=update)


def version_of(read: AppConfig) -> str:
    """Return a hash of a configuration, the same in every process."""
    body = json.dumps(read.model_dump(mode="json"), sort_keys=True)
    return hashlib.sha256(body.encode()).hexdigest()[:12]


def versioned(deployment: serve.Deployment, version: str) -> serve.Deployment:
    """Return a deployment that Ray Serve restarts if `version` is not that of the running
    replicas, or its resources have changed."""
    config = deployment._deployment_config
    fields = dict(config) | {"version": version}
    deployment._deployment_config = _Versioned.model_construct(config.model_fields_set, **fields)
    return deployment


class _Versioned(DeploymentConfig):
    """Keep the version that `build` gives a deployment, and not Ray's, a hash of all `args`."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "version":
            super().__setattr__(name, value)


def surge_percent(resources: MethodDeployment, engine: EngineConfig) -> int:
    """Return how many replacements of a method start before its replicas stop.

    Without room for both the replicas stop first: no cores are free if replicas have cores of their
    own, and no place if a node may have so many.
    """
    alone = engine.pin_cores or resources.max_replicas_per_node is not None
    return 0 if alone else SURGE_PERCENT


def _named(method: MethodDeployment) -> MethodDeployment:
    return MethodDeployment(name=method.name, spec=method.spec)


def _placed(method: MethodDeployment) -> dict[str, Any]:
    names = ("num_cpus", "num_gpus", "accelerator_type")
    return {name: getattr(method, name) for name in names}


def _without(settings: Any, names: Collection[str]) -> Any:
    """Return settings with the named fields at their defaults."""
    fields = type(settings).model_fields
    return settings.model_copy(
        update={name: fields[name].get_default(call_default_factory=True) for name in names}
    )


LOOK_SECONDS = 2.0
WAITING_SECONDS = 60.0
"""How long replacements may wait without any progress. An autoscaler may add a node."""
_UNSCHEDULED = "to be scheduled"
"""What Ray Serve says of a deployment whose replicas have waited for resources for 30 s."""


class Capacity:
    """Watch the deployments of an application for replacements that cannot start.

    Ray Serve starts replacements before it stops the replicas that they replace. Where no GPU is
    free all of them would wait forever. If one replica is stopped, its GPU goes to a waiting
    replacement, and the GPU of that one's predecessor to the next.
    """

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
