"""The policies that `specadapt simulate` compares, by name, and the replicas that each has."""

from collections.abc import Sequence
from dataclasses import dataclass

from ops.cli.boundary import InputError
from ops.load.policies import (
    ONLY,
    RANDOM,
    ROUTED,
    STATIC,
    Policy,
    Question,
    at_random,
    only,
    routed,
    static_table,
)
from router.queueing import burden
from schemas import LoadReport, RouterConfig, RoutingTable

LEAST_LOADED = "least_loaded"
"""The method whose replica has the fewest outstanding tokens, whatever the prompt."""
ROUTING = (ROUTED, STATIC, LEAST_LOADED, RANDOM)


@dataclass(frozen=True)
class Fleet:
    """How many replicas there are, and whether each hosts every method (`shared`) or one."""

    replicas: int
    shared: bool

    def layout(self, methods: Sequence[str], policy: str) -> list[tuple[str, ...]]:
        """The methods of each replica; a single method is on all of them. Raises InputError where
        there are too few for one per method."""
        if policy.startswith(ONLY):
            return [(policy.removeprefix(ONLY),)] * self.replicas
        if self.shared:
            return [tuple(methods)] * self.replicas
        if self.replicas < len(methods):
            raise InputError(
                f"--replicas: {self.replicas} are too few for one of each of {len(methods)} "
                "methods; ask for more, fewer --methods, or layout: shared"
            )
        return [(methods[i % len(methods)],) for i in range(self.replicas)]


def policy_of(name: str, table: RoutingTable, config: RouterConfig, seed: int) -> Policy:
    """The policy of a name that `check` lets pass."""
    if name == ROUTED:
        return routed(table, config, seed)
    if name == STATIC:
        return static_table(table, config)
    if name == RANDOM:
        return at_random(table.methods, seed)
    if name == LEAST_LOADED:
        return least_loaded(table.methods)
    return only(name.removeprefix(ONLY))


def check(policies: Sequence[str], methods: Sequence[str]) -> None:
    """Raises InputError for a name that no policy has."""
    known = [*ROUTING, *(f"{ONLY}{m}" for m in methods)]
    if unknown := [name for name in policies if name not in known]:
        raise InputError(f"--policies: no {', '.join(unknown)}; there are {', '.join(known)}")


def least_loaded(methods: Sequence[str]) -> Policy:
    """The methods in the order of their least burdened replicas."""

    def ordered(_: Question, loads: Sequence[LoadReport]) -> Sequence[str]:
        least = {
            m: min((burden(load, m) for load in loads if m in load.methods), default=None)
            for m in methods
        }
        there = [(tokens, m) for m, tokens in least.items() if tokens is not None]
        return [m for _, m in sorted(there, key=lambda one: one[0])]

    return ordered
