"""Simulated replicas, and how many there are."""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import count
from math import ceil

from ops.simulate.cores import Machine
from ops.simulate.outcomes import Usage
from ops.simulate.replicas.replica import Replica
from ops.simulate.workload import Request
from router.scaling import LOOK_BACK_SECONDS, UsualAnswer, wanted_replicas, work_seconds
from schemas import EngineConfig, LoadReport, MethodDeployment, RoutingTable

Methods = tuple[str, ...]


class Replicas:
    """The replicas of a service, by name. A replica is paid for from its request until its end."""

    def __init__(
        self,
        table: RoutingTable,
        machine: Machine,
        scales: Mapping[Methods, MethodDeployment],
    ) -> None:
        """Start without replicas.

        scales: the deployments that scale, by the methods of their replicas.
        """
        self._table, self._machine = table, machine
        self._made = count()
        self._starting: dict[str, Methods] = {}
        self._ending: dict[str, Replica] = {}
        self._since: dict[str, float] = {}
        self._usual: dict[str, UsualAnswer] = {}
        self.live: dict[str, Replica] = {}
        """Those that take requests."""
        self.scalers = {
            methods: Autoscaler(resources, machine.engine) for methods, resources in scales.items()
        }
        self.usage: list[Usage] = []

    def want(self, now: float, methods: Methods) -> str:
        """Start a replica and return its name."""
        name = f"{'+'.join(methods)}-{next(self._made)}"
        self._starting[name], self._since[name] = methods, now
        return name

    def ready(self, name: str) -> bool:
        """Let a replica take requests; return False if it is no longer wanted."""
        methods = self._starting.pop(name, None)
        if methods is None:
            return False
        self.live[name] = Replica(name, methods, self._table.methods, self._machine)
        self._usual[name] = UsualAnswer(self._table)
        return True

    @property
    def idle(self) -> bool:
        """Return whether no replica has a request."""
        return not any(replica.ongoing for replica in self.live.values())

    def loads(self, stale: float) -> list[LoadReport]:
        """Return the load reports of the replicas that take requests."""
        return [replica.report(stale) for replica in self.live.values()]

    def has_room(self, name: str) -> bool:
        """Return whether a replica may get a request. A fixed one is bounded by its own queue."""
        replica = self.live[name]
        scaler = self.scalers.get(replica.methods)
        return scaler is None or replica.ongoing < scaler.ongoing

    def ended(self, replica: Replica, request: Request, now: float) -> None:
        """Record an ended answer; a replica that was waiting for its last answer is gone."""
        if usual := self._usual.get(replica.name):
            usual.saw(request.said + request.path.tokens)
        if replica.name in self._ending and not replica.ongoing:
            del self._ending[replica.name]
            self._gone(replica, now)

    def die(self, name: str, now: float) -> Replica:
        """Remove a replica at once."""
        replica = self.live.pop(name)
        replica.die()
        self._gone(replica, now)
        return replica

    def let_go(self, methods: Methods, now: float) -> None:
        """Remove one replica of these methods: a starting one, or the one with the fewest requests.

        The latter first ends its answers.
        """
        starting = [name for name, hosted in self._starting.items() if hosted == methods]
        if starting:
            name = starting[-1]
            del self._starting[name]
            self.usage.append(Usage(now - self._since.pop(name), 0.0, 0.0, 0.0))
            return
        hosts = [replica for replica in self.live.values() if replica.methods == methods]
        replica = min(hosts, key=lambda one: len(one.requests))
        del self.live[replica.name]
        if not replica.ongoing:
            self._gone(replica, now)
        else:
            self._ending[replica.name] = replica

    def change(self, now: float, methods: Methods, queued: int) -> int:
        """Return how many more replicas of these methods are wanted; surplus ones are let go."""
        hosts = [replica for replica in self.live.values() if replica.methods == methods]
        work = requests = 0.0
        for replica in hosts:
            load = replica.report(0.0)
            usual = self._usual[replica.name].tokens
            work += work_seconds(self._table, load, self._machine.engine.max_batch, usual)
            requests += load.running + load.waiting
        present = len(hosts) + sum(hosted == methods for hosted in self._starting.values())
        wanted = self.scalers[methods].wanted(now, present, work, requests, queued)
        for _ in range(present - wanted):
            self.let_go(methods, now)
        return max(0, wanted - present)

    def close(self, now: float) -> Sequence[Usage]:
        """Return the usage of all replicas at the run's end."""
        for replica in [*self.live.values(), *self._ending.values()]:
            self._gone(replica, now)
        self.usage += [Usage(max(0.0, now - self._since[n]), 0.0, 0.0, 0.0) for n in self._starting]
        return self.usage

    def _gone(self, replica: Replica, now: float) -> None:
        there = max(0.0, now - self._since.pop(replica.name))
        self.usage.append(replica.usage(there))


LOOK_SECONDS = 1.0
"""Between two looks at the replicas. Ray Serve's are as often by default or more often; what they
see is the mean over LOOK_BACK_SECONDS."""


class Autoscaler:
    """Scales one deployment, with at least one replica."""

    def __init__(self, resources: MethodDeployment, engine: EngineConfig) -> None:
        self.most = resources.max_replicas
        self.least = max(1, resources.min_replicas)
        usual = engine.max_batch + ceil(engine.max_batch / 4)
        self.ongoing = resources.max_ongoing_requests or usual
        """Requests that a replica takes; what comes beyond them waits for whichever has room."""
        self.held = engine.max_waiting * self.most
        """So many wait at most. Both are as `deployments.app` has them."""
        self._resources = resources
        self._looks: deque[tuple[float, float, float]] = deque()
        self._more_since: float | None = None
        self._fewer_since: float | None = None

    def wanted(self, now: float, present: int, work: float, requests: float, queued: float) -> int:
        """Return the number of replicas wanted from now on.

        present: replicas wanted so far. work, requests: of all of them now, as `router.scaling`
        counts. queued: requests that no replica has.
        """
        self._looks.append((now, work, requests))
        while self._looks[0][0] < now - LOOK_BACK_SECONDS:
            self._looks.popleft()
        mean_work, mean_requests = (
            sum(look[i] for look in self._looks) / len(self._looks) for i in (1, 2)
        )
        scale = self._resources
        found = wanted_replicas(
            mean_work, mean_requests, queued, scale.target_seconds, scale.spare_replicas
        )
        found = min(self.most, max(self.least, found))
        self._more_since = self._since(self._more_since, now, found > present)
        self._fewer_since = self._since(self._fewer_since, now, found < present)
        if self._held(self._more_since, now, scale.upscale_delay_seconds) or self._held(
            self._fewer_since, now, scale.downscale_delay_seconds
        ):
            self._more_since = self._fewer_since = None
            return found
        return present

    @staticmethod
    def _since(before: float | None, now: float, holds: bool) -> float | None:
        if not holds:
            return None
        return now if before is None else before

    @staticmethod
    def _held(since: float | None, now: float, delay: float) -> bool:
        return since is not None and now - since >= delay
