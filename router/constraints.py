"""What a request demands of the methods, and which of them may answer it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from router.replica_loads import ReplicaLoads
from schemas import Reason, RouterConfig, RoutingTable


@dataclass(frozen=True)
class Slo:
    """Objectives for a response's speed; None: none.

    first_seconds: to the first token. token_seconds: between later tokens, on average.
    """

    first_seconds: float | None = None
    token_seconds: float | None = None

    def __bool__(self) -> bool:
        return self != Slo()


@dataclass(frozen=True)
class Constraints:
    """Limits of the choice for one request.

    healthy: methods with a live replica. startable: methods without one that get one when asked,
    and in how many seconds. pinned: the only method allowed. excluded: methods that cannot serve a
    parameter of the request. resting: methods whose circuit is open. deadline_seconds: from now;
    the choice is limited to methods predicted to meet it. conversation_method: which method
    answered the last turn. explore: whether the request may be used to learn. copying: methods that
    copy from the response that the request predicts, none if it predicts nothing. With a deadline
    or an slo, or while the conversation keeps its method, nothing is tried out.
    """

    healthy: frozenset[str]
    startable: Mapping[str, float] = field(default_factory=dict)
    pinned: str | None = None
    excluded: frozenset[str] = field(default_factory=frozenset)
    resting: frozenset[str] = field(default_factory=frozenset)
    deadline_seconds: float | None = None
    conversation_method: str | None = None
    explore: bool = True
    slo: Slo = field(default_factory=Slo)
    copying: frozenset[str] = field(default_factory=frozenset)


def obstacles_of(
    table: RoutingTable,
    loads: ReplicaLoads,
    constraints: Constraints,
    config: RouterConfig,
) -> dict[str, Reason | None]:
    """Return by method the reason why it may not answer, or None if it may."""
    obstacles: dict[str, Reason | None] = {}
    for name in table.methods:
        # A request that pins a method has decided about losslessness.
        lossy = not config.lossy and constraints.pinned != name and not table.lossless.get(name)
        sick = name not in constraints.healthy or name in loads.unwell
        retired = config.weights.get(name) == 0.0 and constraints.pinned != name
        if name in constraints.excluded or lossy or retired:
            obstacles[name] = "constraint"
        elif name in constraints.resting or (sick and name not in constraints.startable):
            obstacles[name] = "failover"
        else:
            obstacles[name] = None
    return obstacles


def why_not(
    table: RoutingTable,
    name: str,
    constraints: Constraints,
    obstacles: Mapping[str, Reason | None],
) -> str:
    """Explain to a client why a method may not answer its request."""
    if name not in table.methods:
        return f"{name} is not served; available methods: {', '.join(table.methods)}"
    if name in constraints.resting:
        return f"{name} is disabled after repeated failures"
    if obstacles[name] == "failover":
        return f"{name} has no healthy replica"
    return f"{name} cannot serve this request"
