"""The autoscaling policies that `bench scaling` compares."""

from collections.abc import Callable
from functools import partial
from typing import Any

from ray import serve
from ray.serve.config import AutoscalingConfig

from deployments.app import build
from deployments.replica.placement import resources_of
from deployments.replica.scaling import autoscaling
from ops.harness.boundary import InputError
from schemas import AppConfig

FOLLOW_WORK = "follow_work"
"""Ours: replicas follow the predicted seconds of work."""
FIXED = "fixed"
"""As many replicas as there may be, all the time."""
ONGOING = "ongoing_"
"""Prefix of Ray Serve's own policy, before its target_ongoing_requests."""

Build = Callable[[AppConfig], serve.Application]


def check(policy: str) -> None:
    """Raises InputError where nothing has this name."""
    if policy not in (FOLLOW_WORK, FIXED) and not _target(policy) > 0.0:
        raise InputError(
            f"--policies: {policy} is unknown; known policies: {FOLLOW_WORK}, {FIXED}, and "
            f"{ONGOING}N for Ray Serve's with N ongoing requests per replica"
        )


def scaled(config: AppConfig, policy: str, methods: int, gpus: int) -> AppConfig:
    """Return the configuration with one GPU per replica and 1 to `gpus` replicas, or all of them.

    Several methods with replicas of their own share the GPUs equally. Raises InputError if a method
    gets none.
    """
    most = gpus // (1 if config.layout == "shared" else methods)
    if most == 0:
        raise InputError(f"--gpus: {gpus} are too few for replicas of {methods} methods")
    least = most if policy == FIXED else 1
    update = {"min_replicas": least, "max_replicas": most, "num_gpus": 1.0}
    return config.model_copy(
        update={
            "shared": config.shared.model_copy(update=update),
            "methods": tuple(m.model_copy(update=update) for m in config.methods),
        }
    )


def builder(policy: str) -> Build:
    """What makes the application that scales so."""
    return partial(_by_ongoing_requests, _target(policy)) if policy.startswith(ONGOING) else build


def _by_ongoing_requests(target: float, config: AppConfig) -> serve.Application:
    """Build the application under Ray Serve's own policy, with our bounds, delays and look-back."""
    ingress = build(config)._bound_deployment
    given: Any = ingress.init_args
    settings, methods = given
    swapped: dict[int, serve.Application] = {}
    for name, method in methods.items():
        if id(method) in swapped:  # a shared deployment stands there for each of its methods
            continue
        deployment = method._bound_deployment
        ours = autoscaling(resources_of(name, config))
        theirs = AutoscalingConfig(
            min_replicas=ours.min_replicas,
            max_replicas=ours.max_replicas,
            target_ongoing_requests=target,
            look_back_period_s=ours.look_back_period_s,
            upscale_delay_s=ours.upscale_delay_s,
            downscale_delay_s=ours.downscale_delay_s,
        )
        changed = deployment.options(autoscaling_config=theirs)
        swapped[id(method)] = changed.bind(*deployment.init_args)
    return ingress.bind(settings, {name: swapped[id(m)] for name, m in methods.items()})


def _target(policy: str) -> float:
    try:
        return float(policy.removeprefix(ONGOING)) if policy.startswith(ONGOING) else 0.0
    except ValueError:
        return 0.0
