"""What each part of the application reads of the configuration, and how a change is rolled out.

Ray Serve restarts every deployment when any of an application's `args` changes (Ray 2.60). Here a
deployment's version comes from the settings that it reads, so that a change restarts only those
that it concerns.
"""

import hashlib
import json
from collections.abc import Collection
from typing import Any

from ray import serve
from ray.serve._private.config import DeploymentConfig

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
