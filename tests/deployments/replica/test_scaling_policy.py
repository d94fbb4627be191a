"""The autoscaling policy as Ray Serve's controller calls it."""

import pytest
from ray.serve._private.common import DeploymentID, ReplicaID
from ray.serve.config import AutoscalingContext

from deployments.replica.scaling import REQUESTS, WORK, FollowWork, autoscaling
from schemas import MethodDeployment

RESOURCES = MethodDeployment(name="ngram", min_replicas=1, max_replicas=4, target_seconds=2.0)
HERE = DeploymentID("ngram", "app")


def context(work: list[float], requests: list[float], queued: float = 0.0) -> AutoscalingContext:
    names = [ReplicaID(str(index), HERE) for index in range(len(work))]
    reported = {WORK: dict(zip(names, work, strict=True))} if work else {}
    reported |= {REQUESTS: dict(zip(names, requests, strict=True))} if work else {}
    return AutoscalingContext(
        deployment_id=HERE,
        deployment_name="ngram",
        app_name="app",
        current_num_replicas=len(names),
        target_num_replicas=2,
        running_replicas=names,
        total_num_requests=sum(requests) + queued,
        total_queued_requests=queued,
        aggregated_metrics=reported,
        raw_metrics={},
        capacity_adjusted_min_replicas=1,
        capacity_adjusted_max_replicas=4,
        policy_state={},
        last_scale_up_time=None,
        last_scale_down_time=None,
        current_time=0.0,
        config=autoscaling(RESOURCES),
    )


@pytest.mark.parametrize(
    ("work", "requests", "queued", "wanted"),
    [
        ([0.0, 0.0], [0, 0], 0, 0),
        ([1.9, 0.0], [8, 0], 0, 1),
        ([1.5, 1.5], [1, 1], 0, 2),
        ([4.0, 4.0], [2, 2], 4, 8),
        ([], [], 3, 2),
    ],
)
def test_replicas_follow_the_work(work, requests, queued, wanted):
    decided, state = FollowWork(2.0)(context(work, requests, queued))
    assert (decided, state) == (wanted, {})


def test_ray_is_given_it_with_its_settings():
    made = autoscaling(RESOURCES)
    policy = made.policy.get_policy()
    built = policy(**made.policy.policy_kwargs) if isinstance(policy, type) else policy
    assert built(context([1.9, 0.0], [8, 0]))[0] == 1
    assert (made.min_replicas, made.max_replicas) == (1, 4)
