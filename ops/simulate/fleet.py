"""Simulated replicas, and how many there are."""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import count
from math import ceil

from ops.simulate.controller import Controller, Stepwise
from ops.simulate.cores import Cores
from ops.simulate.costs import StepCosts
from ops.simulate.outcomes import Usage
from ops.simulate.replica import Replica
from ops.simulate.stepwise import StepwiseReplica
from ops.simulate.workload import Request
from router.scaling import LOOK_BACK_SECONDS, UsualAnswer, wanted_replicas, work_seconds
from schemas import EngineConfig, LoadReport, MethodDeployment, RoutingTable

Methods = tuple[str, ...]


class Replicas:
    """By name, each with the methods it hosts. A replica is paid for from when it is wanted until
    it is gone."""

    def __init__(
        self,
        table: RoutingTable,
        engine: EngineConfig,
        costs: StepCosts,
        cores: Cores,
        scales: Mapping[Methods, MethodDeployment],
        stream_seconds: float = 0.0,
        stepwise: Stepwise | None = None,
    ) -> None:
        """scales: of the deployments, by the methods of their replicas, that come and go.
        stream_seconds: as of `Overhead`. stepwise: what drafts are chosen from, where they are at
        every step."""
        self._table, self._engine, self._costs, self._cores = table, engine, costs, cores
        self._stream_seconds, self._stepwise = stream_seconds, stepwise
        self._made = count()
        self._starting: dict[str, Methods] = {}
        self._ending: dict[str, Replica] = {}
        self._since: dict[str, float] = {}
        self._usual: dict[str, UsualAnswer] = {}
        self.live: dict[str, Replica] = {}
        """Those that take requests."""
        self.scalers = {
            methods: Autoscaler(resources, engine) for methods, resources in scales.items()
        }
        self.usage: list[Usage] = []

    def want(self, now: float, methods: Methods) -> str:
        """The name of a new one, which starts."""
        name = f"{'+'.join(methods)}-{next(self._made)}"
        self._starting[name], self._since[name] = methods, now
        return name

    def ready(self, name: str) -> bool:
        """It takes requests from now on; False where it is not wanted any more."""
        methods = self._starting.pop(name, None)
        if methods is None:
            return False
        made = (name, methods, self._table.methods, self._engine, self._costs, self._cores)
        if self._stepwise is None:
            self.live[name] = Replica(*made, self._stream_seconds)
        else:
            controller = Controller(self._stepwise, len(self._usual))
            self.live[name] = StepwiseReplica(*made, self._stream_seconds, controller=controller)
        self._usual[name] = UsualAnswer(self._table)
        return True

    def loads(self, stale: float) -> list[LoadReport]:
        """What those that take requests say of themselves."""
        return [replica.report(stale) for replica in self.live.values()]

    def has_room(self, load: LoadReport) -> bool:
        """Whether a replica may be given a request; only its own line bounds one that stays."""
        scaler = self.scalers.get(load.methods)
        return scaler is None or load.running + load.waiting < scaler.ongoing

    def ended(self, replica: Replica, request: Request, now: float) -> None:
        """An answer has ended; a replica that was to end with its last one is gone."""
        if usual := self._usual.get(replica.name):
            usual.saw(request.said + request.path.tokens)
        if replica.name in self._ending and replica.idle:
            del self._ending[replica.name]
            self._gone(replica, now)

    def die(self, name: str, now: float) -> Replica:
        """It is gone at once."""
        replica = self.live.pop(name)
        replica.die()
        self._gone(replica, now)
        return replica

    def let_go(self, methods: Methods, now: float) -> None:
        """One fewer of these: one that starts, or else the one with the fewest requests, which ends
        its answers first."""
        starting = [name for name, hosted in self._starting.items() if hosted == methods]
        if starting:
            name = starting[-1]
            del self._starting[name]
            self.usage.append(Usage(now - self._since.pop(name), 0.0, 0.0, 0.0))
            return
        hosts = [replica for replica in self.live.values() if replica.methods == methods]
        replica = min(hosts, key=lambda one: len(one.requests))
        del self.live[replica.name]
        if replica.idle:
            self._gone(replica, now)
        else:
            self._ending[replica.name] = replica

    def change(self, now: float, methods: Methods, queued: int) -> int:
        """How many more of these are wanted now than there are; fewer are let go."""
        hosts = [replica for replica in self.live.values() if replica.methods == methods]
        work = requests = 0.0
        for replica in hosts:
            load = replica.report(0.0)
            load = load.model_copy(update={"requests": replica.remaining()})
            usual = self._usual[replica.name].tokens
            work += work_seconds(self._table, load, self._engine.max_batch, usual)
            requests += load.running + load.waiting
        present = len(hosts) + sum(hosted == methods for hosted in self._starting.values())
        wanted = self.scalers[methods].wanted(now, present, work, requests, queued)
        for _ in range(present - wanted):
            self.let_go(methods, now)
        return max(0, wanted - present)

    def close(self, now: float) -> Sequence[Usage]:
        """What all of them did, at the run's end."""
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
    """Of one deployment. Fewer than one replica is not simulated."""

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
        """Replicas from now on, of `present` that were wanted so far. work, requests: of all of
        them now, as `router.scaling` counts them; queued: requests that none of them has."""
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
