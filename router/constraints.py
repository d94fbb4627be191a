"""What a request asks of the methods, and which of them may answer it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from schemas import LoadReport, Reason, RouterConfig, RoutingTable


@dataclass(frozen=True)
class Constraints:
    """What limits the choice.

    `healthy`: methods with a replica that answers. `excluded`: methods that cannot serve a
    parameter of the request. `resting`: methods whose circuit is open. `conversation_method`: who
    answered the turn before; while it goes on nothing is tried out. `deadline_seconds`: from now;
    the method is chosen among those predicted to meet it, and nothing is tried out either.
    `explore`: whether this request may be used to learn. `startable`: methods without a replica
    that get one when they are asked.
    """

    healthy: frozenset[str]
    startable: frozenset[str] = field(default_factory=frozenset)
    pinned: str | None = None
    lossless_only: bool = False
    excluded: frozenset[str] = field(default_factory=frozenset)
    resting: frozenset[str] = field(default_factory=frozenset)
    deadline_seconds: float | None = None
    conversation_method: str | None = None
    explore: bool = True


def obstacles_of(
    table: RoutingTable,
    loads: Sequence[LoadReport],
    constraints: Constraints,
    config: RouterConfig,
) -> dict[str, Reason | None]:
    """Per method: None when it may answer, else the reason that sending it elsewhere has."""
    lossless_only = constraints.lossless_only or not config.lossy
    obstacles: dict[str, Reason | None] = {}
    well: set[str] = set()
    unwell: set[str] = set()
    for report in loads:
        (well if report.healthy else unwell).update(report.methods)
    for name in table.methods:
        sick = name in unwell and name not in well
        # Whoever pins a method by name has decided about losslessness.
        lossy = lossless_only and constraints.pinned != name and not table.lossless.get(name)
        retired = config.weights.get(name) == 0.0 and constraints.pinned != name
        if name in constraints.excluded or lossy or retired:
            obstacles[name] = "constraint"
        elif name in constraints.resting or (
            (name not in constraints.healthy or sick) and name not in constraints.startable
        ):
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
    """What stands against a method, for the caller of a request that none may answer."""
    if name not in table.methods:
        return f"{name} is not served (there are {', '.join(table.methods)})"
    if name in constraints.resting:
        return f"{name} rests after failures"
    if obstacles[name] == "failover":
        return f"{name} has no healthy replica"
    return f"{name} may not serve this request"
