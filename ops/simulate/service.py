"""A simulated service: arrivals, the policy that serves, replicas, and what becomes of them."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ops.load.arrivals import Floats
from ops.load.policies import Policy
from ops.simulate.costs import StepCosts
from ops.simulate.outcomes import Outcomes
from ops.simulate.replica import Replica
from ops.simulate.replicas import Methods, Replicas
from ops.simulate.request import NEVER, Request
from ops.simulate.scaling import LOOK_SECONDS
from ops.simulate.workload import DRAWS, Workload
from router.queueing import ranked
from schemas import EngineConfig, LoadReport, MethodDeployment, RouterConfig, RoutingTable

MOST_FAILURES = 2
"""Replicas that may die under a request before it is given up, as in
`deployments.request.attempts`."""


@dataclass(frozen=True)
class World:
    """What a service is made of, beside its replicas. report_seconds: how old a replica's report is
    at most. start_seconds: from when a replica is wanted until it takes requests. kills: when the
    busiest replica dies, each time."""

    table: RoutingTable
    router: RouterConfig
    engine: EngineConfig
    costs: StepCosts
    workload: Workload
    report_seconds: float
    start_seconds: float
    kills: tuple[float, ...] = ()


class Service:
    """Replicas behind one router, from a run's first arrival to its last token."""

    def __init__(
        self,
        world: World,
        layout: Sequence[Methods],
        policy: Policy,
        scales: Mapping[Methods, MethodDeployment],
    ) -> None:
        """layout: the methods of each replica that there is at first. scales: of those that come
        and go, by their methods."""
        self._world, self._policy = world, policy
        self._numbers = {name: m for m, name in enumerate(world.table.methods)}
        self._order = count()
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._replicas = Replicas(world.table, world.engine, world.costs, scales)
        self._queues: dict[Methods, deque[Request]] = {methods: deque() for methods in scales}
        for methods in layout:
            self._ready(0.0, self._replicas.want(0.0, methods))
        for moment in world.kills:
            self._at(moment, self._kill)

    def run(self, arrivals: Floats, prompts: NDArray[np.int64], seed: int) -> Outcomes:
        """Prompts [n] of the workload, asked at these times [n], which rise."""
        self._outcomes = Outcomes.of(arrivals)
        self._left = len(arrivals)
        workload = self._world.workload
        draws = np.random.default_rng((seed, 8)).integers(0, DRAWS, len(arrivals)).tolist()
        if self._queues:
            self._at(0.0, self._look)
        asked = zip(arrivals.tolist(), prompts.tolist(), draws, strict=True)
        for number, (now, prompt, draw) in enumerate(asked):
            self._until(now)
            ways = tuple(paths[draw % len(paths)] for paths in workload.paths[prompt])
            self._ask(now, Request(number, now, workload.questions[prompt], ways))
        self._until(NEVER)
        end = max(arrivals[-1], np.nanmax(self._outcomes.last, initial=0.0))
        self._outcomes.usage = list(self._replicas.close(float(end)))
        return self._outcomes

    def _until(self, moment: float) -> None:
        """Everything that is due by a moment."""
        events = self._events
        while events and events[0][0] <= moment:
            now, _, action, given = heappop(events)
            action(now, *given)

    def _at(self, moment: float, action: Callable[..., None], *given: Any) -> None:
        heappush(self._events, (moment, next(self._order), action, given))

    def _loads(self, now: float) -> list[LoadReport]:
        return self._replicas.loads(now, self._world.report_seconds)

    def _ask(self, now: float, request: Request) -> None:
        """Have it routed, and the methods asked in the policy's order until one has room."""
        loads = self._loads(now)
        request.line = [self._numbers[name] for name in self._policy(request.question, loads)]
        self._place(now, request, loads)

    def _place(self, now: float, request: Request, loads: Sequence[LoadReport]) -> None:
        """The next method in line with room takes it, on the replica with the least burden; where
        there is none it is refused, or waits for a replica of those that come and go."""
        while request.line:
            method = request.line.pop(0)
            name = self._world.table.methods[method]
            request.answered_by(method)
            for host in ranked((load for load in loads if name in load.methods), name):
                if self._replicas.has_room(host) and self._taken(now, request, host.replica):
                    return
            for methods, queue in self._queues.items():
                if name in methods and len(queue) < self._replicas.scalers[methods].held:
                    queue.append(request)
                    return
        self._left -= 1

    def _taken(self, now: float, request: Request, name: str) -> bool:
        replica = self._replicas.live[name]
        before = replica.version
        if not replica.take(request, now):
            return False
        if replica.version != before:
            self._at(replica.next, self._advance, replica, replica.version)
        return True

    def _advance(self, now: float, replica: Replica, version: int) -> None:
        if version != replica.version:
            return  # it was put off, or its replica has died
        ended = replica.advance(now)
        if replica.next != NEVER:
            self._at(replica.next, self._advance, replica, replica.version)
        for request in ended:
            self._outcomes.ended(request, now)
            self._replicas.ended(replica, request, now)
            self._left -= 1
        if ended and self._queues:
            self._from_queue(now, replica.methods)

    def _from_queue(self, now: float, methods: Methods) -> None:
        """Whoever waits goes to replicas that have room again."""
        queue = self._queues.get(methods)
        while queue:
            name = self._world.table.methods[queue[0].method]
            hosts = [load for load in self._loads(now) if load.methods == methods]
            roomy = [load for load in ranked(hosts, name) if self._replicas.has_room(load)]
            if not any(self._taken(now, queue[0], load.replica) for load in roomy):
                return
            queue.popleft()

    def _ready(self, now: float, name: str) -> None:
        if self._replicas.ready(name):
            self._from_queue(now, self._replicas.live[name].methods)

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
        loads = self._loads(now)
        if not loads:
            return
        busiest = max(loads, key=lambda load: load.outstanding_tokens)
        replica = self._replicas.die(busiest.replica, now)
        emitted = {request: replica.emitted(request, now) for request in replica.requests}
        replica.version += 1
        self._start(now, replica.methods)
        for request, tokens in emitted.items():
            request.lost(tokens)
            request.line = request.line or [request.method]
            if request.failures < MOST_FAILURES:
                self._place(now, request, self._loads(now))
            else:
                self._left -= 1
