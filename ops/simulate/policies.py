"""The policies that `specadapt simulate` compares, by name, and the replicas that each has."""

from collections.abc import Sequence
from dataclasses import dataclass

from ops.harness.boundary import InputError
from ops.load.policies import (
    ONLY,
    RANDOM,
    ROUTED,
    STATIC,
    Policy,
    Question,
    Routed,
    at_random,
    only,
    static_table,
)
from ops.simulate.fleet import Methods
from router.replica_loads import ReplicaLoads
from schemas import AppConfig, MethodDeployment, RouterConfig, RoutingTable

LEAST_LOADED = "least_loaded"
"""The method whose replica has the fewest outstanding tokens."""
PINNED = "pinned_"
"""Prefix of the policies that ask one method only, on the replicas that are there for all."""
ROUTING = (ROUTED, STATIC, LEAST_LOADED, RANDOM)


@dataclass(frozen=True)
class Fleet:
    """How many replicas there are at first, and whether each hosts every method (`shared`) or one.
    resources: of the methods, or of the one that hosts all, where replicas come and go. shares: of
    the replicas, by method, where each hosts one; empty: alike."""

    replicas: int
    shared: bool
    resources: tuple[MethodDeployment, ...] = ()
    shares: tuple[float, ...] = ()

    @classmethod
    def configured(cls, config: AppConfig, methods: Sequence[str]) -> "Fleet":
        """Return the minimum replicas of a configuration, which scale where it says so."""
        shared = config.layout == "shared"
        scaled = [config.shared] if shared else [m for m in config.methods if m.name in methods]
        least = sum(max(1, one.min_replicas) for one in scaled)
        comes_and_goes = any(one.max_replicas > max(1, one.min_replicas) for one in scaled)
        return cls(least, shared, tuple(scaled) if comes_and_goes else ())

    def scales(self, methods: Sequence[str], policy: str) -> dict[Methods, MethodDeployment]:
        """Return the resources of each scaling deployment, by its methods.

        A single method gets the replicas of all.
        """
        if not self.resources:
            return {}
        if policy.startswith(ONLY):
            most = sum(one.max_replicas for one in self.resources)
            bounds = {"min_replicas": self.replicas, "max_replicas": most}
            return {
                (policy.removeprefix(ONLY),): self.resources[0].model_copy(update=bounds),
            }
        if self.shared:
            return {tuple(methods): self.resources[0]}
        return {(one.name,): one for one in self.resources}

    def layout(self, methods: Sequence[str], policy: str) -> list[Methods]:
        """The methods of each replica; a single method is on all of them. Raises InputError where
        there are too few for one per method and no `shares` are given."""
        if policy.startswith(ONLY):
            return [(policy.removeprefix(ONLY),)] * self.replicas
        if self.shared:
            return [tuple(methods)] * self.replicas
        if self.resources:
            least = {one.name: max(1, one.min_replicas) for one in self.resources}
            return [(name,) for name in methods for _ in range(least[name])]
        if self.shares:
            return _in_shares(methods, self.shares, self.replicas)
        if self.replicas < len(methods):
            raise InputError(
                f"--replicas: {self.replicas} are too few for one of each of {len(methods)} "
                "methods; ask for more, fewer --methods, or layout: shared"
            )
        return [(methods[i % len(methods)],) for i in range(self.replicas)]


def _in_shares(methods: Sequence[str], shares: Sequence[float], count: int) -> list[Methods]:
    """Return `count` replicas of one method each; the next one is always whose lack is largest."""
    given = dict.fromkeys(methods, 0)
    layout = list[Methods]()
    for size in range(1, count + 1):
        lack = {m: share * size - given[m] for m, share in zip(methods, shares, strict=True)}
        layout.append((name := max(lack, key=lambda m: lack[m]),))
        given[name] += 1
    return layout


def policy_of(name: str, table: RoutingTable, config: RouterConfig, seed: int) -> Policy:
    """The policy of a name that `check` lets pass."""
    if name == ROUTED:
        return Routed(table, config, seed)
    if name == STATIC:
        return static_table(table, config)
    if name == RANDOM:
        return at_random(table.methods, seed)
    if name == LEAST_LOADED:
        return least_loaded(table.methods)
    return only(name.removeprefix(ONLY).removeprefix(PINNED))


def check(policies: Sequence[str], methods: Sequence[str]) -> None:
    """Raise InputError for a name that no policy has."""
    known = [*ROUTING, *(f"{prefix}{m}" for prefix in (ONLY, PINNED) for m in methods)]
    if unknown := [name for name in policies if name not in known]:
        raise InputError(
            f"--policies: {', '.join(unknown)} is unknown; known policies: {', '.join(known)}"
        )


def least_loaded(methods: Sequence[str]) -> Policy:
    """The methods in the order of their least burdened replicas."""

    def ordered(_: Question, loads: ReplicaLoads) -> Sequence[str]:
        least = {
            m: float(loads.work(0.0, loads.number(m))[loads.hosts[loads.number(m)]].min())
            for m in methods
            if m in loads.live
        }
        return sorted(least, key=lambda m: least[m])

    return ordered
