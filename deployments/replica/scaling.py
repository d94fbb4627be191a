"""Ray Serve's autoscaling policy for the methods' deployments."""

from typing import Any

from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy

from router.scaling import wanted_replicas
from schemas import MethodDeployment

LOOK_BACK_SECONDS = 15.0
"""Age of the reports that are averaged; Ray's replicas send theirs every ten seconds."""

WORK, REQUESTS = "work_seconds", "requests"
"""What each replica reports by `record_autoscaling_stats`."""


class FollowWork:
    """Scale replicas by the predicted seconds of work.

    Ray applies its own bounds and delays to the result, and starts a first replica by itself if a
    request waits and there is none.
    """

    def __init__(self, target_seconds: float) -> None:
        self._target_seconds = target_seconds

    def __call__(self, context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        reported: Any = context.aggregated_metrics or {}
        if not reported.get(WORK):  # none of the replicas has reported yet
            return context.target_num_replicas, {}
        work, requests = (sum(reported.get(name, {}).values()) for name in (WORK, REQUESTS))
        queued = float(context.total_queued_requests or 0.0)
        return wanted_replicas(work, requests, queued, self._target_seconds), {}


def autoscaling(resources: MethodDeployment) -> AutoscalingConfig:
    """Return Ray Serve's configuration for a method whose number of replicas changes."""
    policy = AutoscalingPolicy(  # type: ignore[no-untyped-call]
        policy_function=FollowWork,
        policy_kwargs={"target_seconds": resources.target_seconds},
    )
    return AutoscalingConfig(
        min_replicas=resources.min_replicas,
        max_replicas=resources.max_replicas,
        policy=policy,
        look_back_period_s=LOOK_BACK_SECONDS,
        upscale_delay_s=resources.upscale_delay_seconds,
        downscale_delay_s=resources.downscale_delay_seconds,
    )
