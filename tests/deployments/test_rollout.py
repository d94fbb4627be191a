"""Which replicas are restarted for a change of `args`, take it over, or make room."""

import pytest
from ray.serve._private.build_app import build_app
from ray.serve._private.common import DeploymentStatus, ReplicaState
from ray.serve._private.config import DeploymentConfig
from ray.serve._private.version import DeploymentVersion
from ray.serve.schema import DeploymentStatusOverview
from test_app import changed, deployments

from deployments.app import build
from deployments.configuration import ConfigError, check_clusters, live_fields
from deployments.configuration import changed as live
from deployments.rollout import WAITING_SECONDS, Capacity, read_by_learning, version_of

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


OTHER = {"router": {"weights": {"ngram": 5.0}, "exploration": 0.3}}


def test_changes_are_over_the_configuration(config):
    after = live(config, OTHER | {"http": {"max_answer_seconds": 20}})
    assert (after.router.weights, after.router.exploration) == ({"ngram": 5.0}, 0.3)
    assert after.http.max_answer_seconds == 20.0
    rest = {"router": config.router, "http": config.http}
    assert after.model_copy(update=rest) == config
    assert live_fields(after)["router"]["weights"] == {"ngram": 5.0}
    assert live(config, None) == live(config, {}) == config


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"engine": {"threads": 4}}, "engine: user_config takes the sections router and http"),
        ({"router": 3}, "router: user_config takes"),
        ({"router": {"encoder": "x"}}, r"router\.encoder: cannot change .* set it in args"),
        ({"router": {"exploration": 2.0}}, r"router\.exploration: .*less than or equal to 0\.5"),
        ({"router": {"weights": {"nobody": 1.0}}}, r"router\.weights: 'nobody' is not served"),
    ],
)
def test_what_cannot_be_changed_is_named(config, changes, said):
    with pytest.raises(ConfigError, match=said):
        live(config, changes)


def test_a_pinned_cluster_has_to_be_there(config):
    check_clusters(live(config, {"router": {"pinned_clusters": {1: "naive"}}}), 2)
    with pytest.raises(ConfigError, match="clusters 0 to 1, not 2"):
        check_clusters(live(config, {"router": {"pinned_clusters": {2: "naive"}}}), 2)


UPDATING, HEALTHY = DeploymentStatus.UPDATING, DeploymentStatus.HEALTHY
BOTH = {ReplicaState.RUNNING: 1, ReplicaState.STARTING: 1}
NO_ROOM = "1 replicas that have taken more than 30s to be scheduled."


def deployment(status=UPDATING, message=NO_ROOM, states=BOTH):
    return DeploymentStatusOverview(status, None, states, message)


def looks(*found):
    """What each of many looks says, a second apart."""
    now = [0.0]
    capacity = Capacity(lambda: now[0])
    said = []
    for one in found:
        said.append(capacity.wanted(one))
        now[0] += 1.0
    return said


LONG = int(WAITING_SECONDS) + 2
STUCK = {"a": deployment(), "b": deployment(), "c": deployment(HEALTHY, "")}


def test_one_gives_way_once_nothing_has_moved_for_a_while():
    said = looks(*[STUCK] * LONG)
    assert [name for name in said[:-2] if name] == []
    assert {name for name in said if name} <= {"a", "b"}
    assert any(said)


def test_they_take_turns():
    said = [name for name in looks(*[STUCK] * 3 * LONG) if name]
    assert set(said) == {"a", "b"}


def test_nothing_gives_way_while_something_moves():
    starting = STUCK | {"c": deployment(UPDATING, "")}
    stopping = STUCK | {"c": deployment(HEALTHY, "", {ReplicaState.STOPPING: 1})}
    scaled = {"a": deployment(DeploymentStatus.UPSCALING)}
    for found in (starting, stopping, scaled, {"a": deployment(HEALTHY, "")}):
        assert not any(looks(*[found] * 2 * LONG))
    half = [STUCK] * (LONG // 2)
    assert not any(looks(*half, STUCK | {"b": deployment(HEALTHY, "")}, *half))
