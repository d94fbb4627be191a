"""When a replica makes room for replacements that wait for its resources."""

from ray.serve._private.common import DeploymentStatus, ReplicaState
from ray.serve.schema import DeploymentStatusOverview

from deployments.declared import WAITING_SECONDS, Capacity

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
