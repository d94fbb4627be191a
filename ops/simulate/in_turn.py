"""Load tests that one service answers in turn: it has learned from each when the next one comes."""

from collections.abc import Sequence

from ops.cli.boundary import InputError
from ops.load.policies import ROUTED, Routed
from ops.simulate.learning import Learning
from ops.simulate.outcomes import Outcomes
from ops.simulate.policies import PINNED, Fleet
from ops.simulate.runs import SERVICE_REPLICAS
from ops.simulate.served import Served
from ops.simulate.service import Service, World


def in_turn(
    world: World, fleet: Fleet, methods: Sequence[str], tests: Sequence[Served], seed: int = 0
) -> tuple[list[Outcomes], Learning | None]:
    """What becomes of each test's requests, and what routing has learned in the end; None where
    nothing is learned. Raises InputError for replicas that are more than one service's."""
    layout, scales = fleet.layout(methods, ROUTED), fleet.scales(methods, ROUTED)
    if not scales and len(layout) > SERVICE_REPLICAS:
        raise InputError(
            f"--replicas: load tests in turn are of one service, of {SERVICE_REPLICAS} at most"
        )
    policy = Routed(world.table, world.router, seed)
    learning = None
    if world.flush_seconds is not None:
        learning = Learning(policy, world.router, world.flush_seconds)
    found = []
    for test in tests:
        policy.pinned = None if test.policy == ROUTED else test.policy.removeprefix(PINNED)
        service = Service(world, layout, policy, scales, learning)
        found.append(service.run(test.load.arrivals, test.load.prompts, seed))
        if learning is not None:
            learning.flush(0.0)
    policy.pinned = None
    return found, learning
