"""Which replicas Ray Serve restarts for a change of `args`, and which take it over."""

import pytest
from ray.serve._private.build_app import build_app
from ray.serve._private.config import DeploymentConfig
from ray.serve._private.version import DeploymentVersion
from test_app import changed, deployments

from deployments.app import build
from deployments.rollout import read_by_learning, version_of

METHODS = {"naive", "draft_verify", "ngram"}
EVERYTHING = METHODS | {"ingress"}


def versions(config):
    """Every deployment's version, as Ray Serve compares it with that of the running replicas."""
    found = {}
    for made in build_app(build(config.model_dump(mode="json")), name="some").deployments:
        made._deployment_config.version = "a hash of all args"
        settings = DeploymentConfig.from_proto_bytes(made._deployment_config.to_proto_bytes())
        replica = made._replica_config
        found[made.name] = DeploymentVersion(
            settings.version,
            settings,
            replica.ray_actor_options,
            max_replicas_per_node=replica.max_replicas_per_node,
        )
    return found


def first_method(config, **resources):
    first, *rest = config.model_dump()["methods"]
    return [first | resources, *rest]


CHANGES = [
    ({}, set()),
    ({"router": {"exploration": 0.2, "weights": {"ngram": 2.0}}}, set()),
    ({"http": {"max_body_bytes": 5000, "max_answer_seconds": 9.0}}, set()),
    ({"http": {"ingress_replicas": 2}}, set()),
    ({"http": {"guard": {"cors_origins": ["https://chat.example.com"]}}}, {"ingress"}),
    ({"http": {"ingress_num_cpus": 0.25}}, {"ingress"}),
    ({"router": {"lossy": True}}, {"ingress"}),
    ({"feedback": {"sample_tokens": 5}}, {"ingress"}),
    ({"engine": {"max_waiting": 65}}, EVERYTHING),
]


@pytest.mark.parametrize(("changes", "restarted"), CHANGES)
def test_a_change_restarts_what_reads_it(config, changes, restarted):
    before, after = versions(config), versions(changed(config, **changes))
    assert {n for n in before if before[n].requires_actor_restart(after[n])} == restarted
    if changes:
        told = before["naive"].requires_actor_reconfigure(after["naive"])
        assert told, "from where ingresses learn of it"


RESOURCES = [
    ({"min_replicas": 2, "max_replicas": 3}, set()),
    ({"drain_seconds": 9.0, "max_ongoing_requests": 5}, set()),
    ({"num_cpus": 0.25}, {"naive"}),
    ({"max_replicas_per_node": 1}, {"naive"}),
]


@pytest.mark.parametrize(("resources", "restarted"), RESOURCES)
def test_resources_of_a_method_concern_it_alone(config, resources, restarted):
    after = versions(changed(config, methods=first_method(config, **resources)))
    before = versions(config)
    assert {n for n in before if before[n].requires_actor_restart(after[n])} == restarted


def test_another_method_leaves_the_others_as_they_are(config):
    fewer = changed(config, methods=[{"name": "naive"}, {"name": "ngram"}])
    before, after = versions(fewer), versions(config)
    assert {n for n in before if before[n].requires_actor_restart(after[n])} == {"ingress"}


def test_what_was_learned_stays_with_its_actor_unless_the_change_concerns_it(config):
    def actor(**changes):
        return version_of(read_by_learning(changed(config, **changes)))

    same = [
        {"router": {"exploration": 0.2}},
        {"http": {"max_body_bytes": 5000}},
        {"methods": first_method(config, num_cpus=0.25)},
    ]
    assert {actor(**changes) for changes in same} == {actor()}
    assert actor(feedback={"sample_tokens": 5}) != actor()


def surges(config):
    return {
        name: made._deployment_config.max_surge_percent
        for name, made in deployments(build(config)).items()
    }


def test_replacements_start_first_where_there_is_room(config):
    assert set(surges(config).values()) == {100}
    apart = first_method(config, max_replicas_per_node=1)
    assert surges(changed(config, methods=apart))["naive"] == 0
    one_a_node = {"ingress_max_replicas_per_node": 1}
    assert surges(changed(config, http=one_a_node))["ingress"] == 0
    pinned = surges(changed(config, engine={"pin_cores": True}))
    assert {name for name, percent in pinned.items() if percent == 0} == METHODS
