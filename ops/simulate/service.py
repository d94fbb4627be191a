"""A simulated service: arrivals, the serving policy, replicas, and the requests' outcomes."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ops.load.arrivals import Floats
from ops.load.policies import Policy, Routed
from ops.simulate.cores import Cores, Machine
from ops.simulate.costs import StepCosts
from ops.simulate.fleet import LOOK_SECONDS, Methods, Replicas
from ops.simulate.learning import Learning
from ops.simulate.outcomes import Outcomes
from ops.simulate.overhead import NOTHING, Overhead
from ops.simulate.replica import Replica
from ops.simulate.workload import DRAWS, NEVER, Request, Workload
from router.predict import counted_output
from router.replica_loads import ranked
from schemas import EngineConfig, LoadReport, MethodDeployment, RouterConfig, RoutingTable

Event = tuple[float, int, Callable[..., None], tuple[Any, ...]]
"""Its due time, its order among simultaneous events, and its action."""

MOST_FAILURES = 2
"""Replicas that may die under a request before it is given up, as in
`deployments.request.attempts`."""


@dataclass(frozen=True)
class World:
    """A service without its replicas.

    report_seconds: the maximum age of a load report. start_seconds: from when a replica is wanted
    until it serves. flush_seconds: the interval of learning, None for never. kills: when the
    busiest replica dies. ingresses: processes that requests pass one by one if cores are shared;
    otherwise unlimited.
    """

    table: RoutingTable
    router: RouterConfig
    engine: EngineConfig
    costs: StepCosts
    workload: Workload
    report_seconds: float
    start_seconds: float
    overhead: Overhead = NOTHING
    flush_seconds: float | None = None
    kills: tuple[float, ...] = ()
    ingresses: int = 1


class Service:
    """Replicas behind one router, from a run's first arrival to its last token."""

    def __init__(
        self,
        world: World,
        layout: Sequence[Methods],
        policy: Policy,
        scales: Mapping[Methods, MethodDeployment],
        learning: Learning | None = None,
    ) -> None:
        """Set up the replicas.

        layout: the methods of each initial replica. scales: the deployments that scale, by their
        methods. learning: the policy's earlier learning.
        """
        self._world, self._policy = world, policy
        self.learning = learning
        if learning is None and isinstance(policy, Routed) and world.flush_seconds is not None:
            self.learning = Learning(policy, world.router, world.flush_seconds)
        self._cores = Cores(world.overhead.cores, world.overhead.crowding)
        self._numbers = {name: m for m, name in enumerate(world.table.methods)}
        self._free = float("inf") if world.overhead.cores is None else world.ingresses
        self._line: deque[tuple[float, Callable[..., None], tuple[Any, ...]]] = deque()
        """What waits for an ingress."""
        self._order = count()
        self._events: list[Event] = []
        self._work: list[Event] = []
        """Due once so many seconds of work are done."""
        machine = Machine(world.engine, world.costs, self._cores, world.overhead.stream_seconds)
        self._replicas = Replicas(world.table, machine, scales)
        self._queues: dict[Methods, deque[Request]] = {methods: deque() for methods in scales}
        for methods in layout:
            self._ready(0.0, self._replicas.want(0.0, methods))
        for moment in world.kills:
            self._at(moment, self._kill)

    def run(self, arrivals: Floats, prompts: NDArray[np.int64], seed: int) -> Outcomes:
        """Simulate prompts [n] of the workload that arrive at rising times [n]."""
        self._outcomes = Outcomes.of(arrivals)
        self._left = len(arrivals)
        if self.learning is not None:
            self.learning.runs += 1
        workload = self._world.workload
        draws = np.random.default_rng((seed, 8)).integers(0, DRAWS, len(arrivals)).tolist()
        if self._queues:
            self._at(0.0, self._look)
        asked = zip(arrivals.tolist(), prompts.tolist(), draws, strict=True)
        for number, (now, prompt, draw) in enumerate(asked):
            self._until(now)
            ways = tuple(paths[draw % len(paths)] for paths in workload.paths[prompt])
            self._send(now, Request(number, now, workload.questions[prompt], ways))
        self._until(NEVER)
        self._outcomes.last += self._world.overhead.reply_seconds
        end = max(arrivals[-1], np.nanmax(self._outcomes.last, initial=0.0))
        self._outcomes.usage = list(self._replicas.close(float(end)))
        return self._outcomes

    def _until(self, moment: float) -> None:
        """Everything that is due by a moment."""
        events, work, cores = self._events, self._work, self._cores
        while True:
            worked = cores.when(work[0][0]) if work else NEVER
            first = work if worked < NEVER and (not events or worked < events[0][0]) else events
            if not first:
                break
            now = worked if first is work else first[0][0]
            if now > moment:
                break
            cores.at(now)
            _, _, action, given = heappop(first)
            action(now, *given)
        if moment != NEVER:
            cores.at(moment)

    def _at(self, moment: float, action: Callable[..., None], *given: Any) -> None:
        heappush(self._events, (moment, next(self._order), action, given))

    def _after(self, work: float, action: Callable[..., None], *given: Any) -> None:
        heappush(self._work, (work, next(self._order), action, given))

    @property
    def _table(self) -> RoutingTable:
        """The table in force."""
        return self._policy.table if isinstance(self._policy, Routed) else self._world.table

    def _ranked(self, hosts: Sequence[LoadReport], request: Request) -> list[LoadReport]:
        """Return the replicas in the order in which one ingress asks them for a request."""
        method = self._world.table.methods[request.method]
        return ranked(hosts, method, request.counted, self._table)

    def _loads(self) -> list[LoadReport]:
        return self._replicas.loads(self._world.report_seconds)

    def _send(self, now: float, request: Request) -> None:
        """It is on its way through HTTP and the ingress, which is work."""
        self._pass(now, self._world.overhead.request_seconds, self._ask, request)

    def _pass(self, now: float, work: float, then: Callable[..., None], *given: Any) -> None:
        """Through an ingress, when its turn comes; each does one thing at a time."""
        if self._free:
            self._begin(now, work, then, given)
        else:
            self._line.append((work, then, given))

    def _begin(self, now: float, work: float, then: Callable[..., None], given: Any) -> None:
        if work == 0.0:
            then(now, *given)
            return
        self._free -= 1
        self._cores.busy += 1.0
        self._after(self._cores.work + work, self._passed, then, given)

    def _passed(self, now: float, then: Callable[..., None], given: tuple[Any, ...]) -> None:
        self._free += 1
        self._cores.busy -= 1.0
        then(now, *given)
        while self._line and self._free:
            self._begin(now, *self._line.popleft())

    def _ask(self, now: float, request: Request) -> None:
        """Have it routed, and the methods asked in the policy's order until one has room."""
        loads = self._loads()
        if self.learning is None:
            names = self._policy(request.question, loads)
        else:
            names = self.learning.ordered(now, request, loads)
        features = request.question.features
        request.counted = counted_output(self._table, request.question.cluster, features.max_tokens)
        request.line = [self._numbers[name] for name in names]
        request.handed = now
        self._place(request, loads)

    def _place(self, request: Request, loads: Sequence[LoadReport]) -> None:
        """The next method in line with room takes it, on the replica with the least burden; where
        there is none it is refused, or waits for a replica of those that come and go."""
        while request.line:
            method = request.line.pop(0)
            name = self._world.table.methods[method]
            request.answered_by(method)
            for host in self._ranked([load for load in loads if name in load.methods], request):
                if self._replicas.has_room(host) and self._taken(request, host.replica):
                    return
            for methods, queue in self._queues.items():
                if name in methods and len(queue) < self._replicas.scalers[methods].held:
                    queue.append(request)
                    return
        self._left -= 1

    def _taken(self, request: Request, name: str) -> bool:
        replica = self._replicas.live[name]
        before = replica.version
        if not replica.take(request):
            return False
        if replica.version != before:
            self._after(replica.next, self._advance, replica, replica.version)
        return True

    def _advance(self, now: float, replica: Replica, version: int) -> None:
        if version != replica.version:
            return  # it was put off, or its replica has died
        ended = replica.advance()
        if replica.next != NEVER:
            self._after(replica.next, self._advance, replica, replica.version)
        for request in ended:
            self._pass(now, 0.0, self._replied, request)
            if self.learning is not None:
                self.learning.ended(now, request, self._world.table.methods[request.method])
            self._replicas.ended(replica, request, now)
            self._left -= 1
        if ended and self._queues:
            self._from_queue(replica.methods)

    def _replied(self, now: float, request: Request) -> None:
        self._outcomes.ended(request, now)

    def _from_queue(self, methods: Methods) -> None:
        """Whoever waits goes to replicas that have room again."""
        queue = self._queues.get(methods)
        while queue:
            hosts = [load for load in self._loads() if load.methods == methods]
            hosts = self._ranked(hosts, queue[0])
            roomy = [load for load in hosts if self._replicas.has_room(load)]
            if not any(self._taken(queue[0], load.replica) for load in roomy):
                return
            queue.popleft()

    def _ready(self, _now: float, name: str) -> None:
        if self._replicas.ready(name):
            self._from_queue(self._replicas.live[name].methods)

    def _start(self, now: float, methods: Methods) -> None:
        name = self._replicas.want(now, methods)
        self._at(now + self._world.start_seconds, self._ready, name)

    def _look(self, now: float) -> None:
        """Whether other numbers of replicas are wanted."""
        for methods, queue in self._queues.items():
            for _ in range(self._replicas.change(now, methods, len(queue))):
                self._start(now, methods)
        if self._left:
            self._at(now + LOOK_SECONDS, self._look)

    def _kill(self, now: float) -> None:
        """The replica with the most before it dies; another is started in its place, and its
        requests go on elsewhere from the tokens that are out."""
        loads = self._loads()
        if not loads:
            return
        busiest = max(loads, key=lambda load: load.outstanding_tokens)
        replica = self._replicas.die(busiest.replica, now)
        emitted = {request: replica.emitted(request) for request in replica.requests}
        self._start(now, replica.methods)
        for request, tokens in emitted.items():
            request.lost(tokens)
            request.line = request.line or [request.method]
            if request.failures < MOST_FAILURES:
                self._place(request, self._loads())
            else:
                self._left -= 1
