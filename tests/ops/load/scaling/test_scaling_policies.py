"""The applications that `bench scaling` starts, without starting them."""

import pytest
from ray.serve._private.build_app import build_app
from replayed import METHODS, replay_config

from ops.harness.boundary import InputError
from ops.load.scaling.policies import FIXED, FOLLOW_WORK, builder, scaled


@pytest.fixture(scope="module")
def config(tiny_bundle, tmp_path_factory):
    return replay_config(tmp_path_factory.mktemp("scaling"), tiny_bundle, ("code", "weather"), {})


def deployments(config, policy, gpus=6):
    application = builder(policy)(scaled(config, policy, len(config.methods), gpus))
    made = build_app(application, name="x").deployments
    return {one.name: one for one in made if one.name != "ingress"}


def scaling(deployment):
    return deployment._deployment_config.autoscaling_config


def test_only_what_is_followed_differs(config):
    ours, theirs = deployments(config, FOLLOW_WORK), deployments(config, "ongoing_1.5")
    assert set(ours) == set(theirs) == set(METHODS)
    for name in METHODS:
        mine, rays = scaling(ours[name]), scaling(theirs[name])
        assert rays.policy.is_default_policy_function()
        assert not mine.policy.is_default_policy_function()
        assert rays.target_ongoing_requests == 1.5
        for same in ("min_replicas", "max_replicas", "look_back_period_s", "upscale_delay_s",
                     "downscale_delay_s"):  # fmt: skip
            assert getattr(mine, same) == getattr(rays, same)
        assert (mine.min_replicas, mine.max_replicas) == (1, 2)
        assert ours[name].ray_actor_options["num_gpus"] == 1
        assert theirs[name].max_ongoing_requests == ours[name].max_ongoing_requests
        assert theirs[name].init_args == ours[name].init_args


def test_a_shared_deployment_stays_one(config):
    shared = config.model_copy(update={"layout": "shared"})
    [made] = deployments(shared, "ongoing_2").values()
    assert (scaling(made).max_replicas, scaling(made).target_ongoing_requests) == (6, 2.0)


def test_fixed_has_all_of_them(config):
    made = deployments(config, FIXED)
    assert [one.num_replicas for one in made.values()] == [2, 2, 2]
    assert all(scaling(one) is None for one in made.values())


def test_a_gpu_for_each_method(config):
    with pytest.raises(InputError, match="--gpus: 2 are too few"):
        scaled(config, FOLLOW_WORK, 3, 2)
