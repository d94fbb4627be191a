"""`deployments.app:build`: the Ray Serve application from one AppConfig.

`serve.yaml`, `specadapt serve` and KubeRay's RayService all name this function.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ray import serve

from deployments import transport
from deployments.artifacts import portfolios, read_template, served_table
from deployments.configuration import ConfigError, check_clusters, resolved, validated
from deployments.errors import RETRY_AFTER_SECONDS
from deployments.guard.key_file import check_isolation, read_keys
from deployments.guard.slots import QUEUED_REQUESTS
from deployments.head_training.trainer import trained_parts
from deployments.ingress import Ingress
from deployments.replica.method import MethodReplica
from deployments.replica.placement import (
    apart,
    check_portfolio,
    replica_options,
    resources_of,
    thread_environment,
)
from deployments.replica.scaling import autoscaling
from deployments.rollout import (
    SURGE_PERCENT,
    read_by_ingress,
    read_by_method,
    surge_percent,
    version_of,
    versioned,
)
from schemas import AppConfig, EngineConfig, MethodDeployment, MethodSpec
from schemas.keys import KeyRing
from workers.drafting.lookup.datastore import open_datastore
from workers.http_clients import client
from workers.portfolio import served_bundle

logger = logging.getLogger(__name__)

INGRESS = "ingress"
SHARED = "shared"
DRAIN_SECONDS = 120.0
"""Time that an ingress has to finish its responses when it is replaced."""
HEALTH_SECONDS = 2.0
HEALTH_TIMEOUT_SECONDS = 10.0
HEALTH_REQUESTS = 64
"""Requests an ingress takes beyond its slots: `/health`, pages, and refusals on their way out."""
REPLICA_CHOICE = "deployments.replica.choice.FewestOutstandingTokens"
NO_ACCESS_LOG = {"enable_access_log": False}


def build(args: AppConfig | Mapping[str, Any]) -> serve.Application:
    """Return the application: the ingress bound to a deployment per method, or to a shared one.

    Raises ConfigError naming the field if args do not validate, the bundle is missing, or the
    routing table does not fit.
    """
    config = resolved(validated(args))
    # Only a Serve configuration, whose args are a mapping, changes a running application.
    declared = isinstance(args, Mapping)
    version = version_of(read_by_ingress(config) if declared else config)
    engines = checked(config, declared=declared)
    return versioned(_ingress_deployment(config), version).bind(config, engines, declared)


def deployment_names(config: AppConfig) -> tuple[str, ...]:
    """Return the names of the application's deployments, as Ray Serve's `deployments` may override
    them."""
    shared = config.layout == "shared"
    engines = (SHARED,) if shared else tuple(method.name for method in config.methods)
    return INGRESS, *engines


def checked(config: AppConfig, *, declared: bool = False) -> dict[str, serve.Application]:
    """Return each method's deployment in a resolved configuration.

    Everything that can be known before a start is checked: bundle, methods, GPUs, routing table,
    keys. Raises ConfigError naming the field.
    """
    names = deployment_names(config)
    if len(set(names)) < len(names):
        raise ConfigError(f"methods: {INGRESS!r} is the HTTP ingress's name: rename the method")
    try:
        bundle = served_bundle(config)
        engines = portfolios(config)
        for specs in engines:
            check_portfolio(specs, bundle, config.engine)
            check_isolation(config.http.guard, specs, config.engine)
        check_clusters(config, len(served_table(config).assignment))
        if config.http.guard.keys_file is not None:
            _warn_if_no_key_teaches(read_keys(config.http.guard.keys_file), config)
        if config.feedback.drafter_training and not trained_parts(config, bundle):
            logger.warning(
                "feedback.drafter_training: no served method drafts with a head that is trained: "
                "add adaptive to methods"
            )
        open_datastore(config.engine.datastore, bundle)
        if config.http.chat_template is not None:
            read_template(config.http.chat_template)
        for url in () if config.engine.openai is None else config.engine.openai.urls:
            client(url).close()  # a proxy that cannot be used is refused here, too
        return {
            spec.name: deployment
            for specs in engines
            for deployment in [_method_deployment(specs, config, declared)]
            for spec in specs
        }
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _warn_if_no_key_teaches(ring: KeyRing, config: AppConfig) -> None:
    if config.feedback.drafter_training and not any(key.teaches for key in ring.keys):
        logger.warning(
            "feedback.drafter_training: no key in %s says `teaches: true`, so no answer is kept "
            "and no head is trained",
            config.http.guard.keys_file,
        )


def _method_deployment(
    specs: Sequence[MethodSpec], config: AppConfig, declared: bool
) -> serve.Application:
    """Return the deployment of an engine's methods, bound to its arguments.

    declared: whether ingresses read the configuration from it (`deployments.rollout`).
    """
    name = SHARED if config.layout == "shared" else specs[0].name
    resources = resources_of(specs[0].name, config)
    names = tuple(spec.name for spec in specs)
    read = read_by_method(config, names)
    scale: dict[str, Any] = {"num_replicas": resources.max_replicas}
    if resources.min_replicas != resources.max_replicas:
        scale = {"autoscaling_config": autoscaling(resources)}
    deployment = cast(serve.Deployment, serve.deployment(MethodReplica)).options(
        name=name,
        **_lines(resources, config.engine),
        request_router_config={"request_router_class": REPLICA_CHOICE},
        logging_config=NO_ACCESS_LOG,
        user_config=config.model_dump(mode="json") if declared else None,
        max_surge_percent=surge_percent(resources, config.engine),
        # Three failures in a row replace a replica: an engine that has died is one for seconds.
        health_check_period_s=HEALTH_SECONDS,
        # A process that has stopped does not answer: Ray waits so long for each of the three.
        health_check_timeout_s=HEALTH_TIMEOUT_SECONDS,
        graceful_shutdown_timeout_s=resources.drain_seconds,
        **replica_options(name, resources, specs, config),
        **scale,
    )
    return versioned(deployment, version_of(read)).bind(read, names)


def _lines(resources: MethodDeployment, engine: EngineConfig) -> dict[str, Any]:
    """Return how many requests a replica takes at a time, and how many more an ingress holds.

    Requests beyond that go elsewhere.
    """
    most = resources.max_replicas
    if most > max(1, resources.min_replicas):
        # A replica that comes takes nothing out of the others' lines: what waits does so at the
        # ingress, but for a few that step in while Serve pauses between two looks for places.
        own, held = engine.max_batch + math.ceil(engine.max_batch / 4), engine.max_waiting * most
    else:
        # What waits does so in the replica's line, where its load reports count it.
        own, held = engine.max_batch + engine.max_waiting, engine.max_waiting
    return {
        "max_ongoing_requests": resources.max_ongoing_requests or own,
        "max_queued_requests": max(1, held),
    }


def _ingress_deployment(config: AppConfig) -> serve.Deployment:
    http = config.http
    slots = http.ingress_max_ongoing_requests + QUEUED_REQUESTS
    return cast(serve.Deployment, serve.deployment(Ingress)).options(
        name=INGRESS,
        num_replicas=http.ingress_replicas,
        **apart(http.ingress_max_replicas_per_node),
        max_surge_percent=0 if http.ingress_max_replicas_per_node else SURGE_PERCENT,
        # The ingress itself refuses what is beyond its slots; the rest keeps `/health` answered.
        max_ongoing_requests=slots + HEALTH_REQUESTS,
        # What a proxy holds, too, while no ingress is there.
        max_queued_requests=slots,
        backpressure_config={"status_code": 429, "retry_after_s": RETRY_AFTER_SECONDS},
        # Lines of the access log are objects with the fields of a request. Ray's own says less.
        logging_config={"encoding": "JSON", **NO_ACCESS_LOG},
        # Ray notices only then that one has died.
        health_check_period_s=HEALTH_SECONDS,
        graceful_shutdown_timeout_s=DRAIN_SECONDS,
        ray_actor_options={
            "num_cpus": http.ingress_num_cpus,
            "runtime_env": {
                "env_vars": {
                    **thread_environment(1),
                    **transport.INGRESS,
                }
            },
        },
    )
