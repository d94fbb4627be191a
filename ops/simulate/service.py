"""A simulated service: arrivals, the policy that serves, replicas, and what becomes of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ops.load.arrivals import Floats
from ops.load.policies import Policy
from ops.simulate.costs import StepCosts
from ops.simulate.outcomes import Outcomes, Usage
from ops.simulate.replica import Replica
from ops.simulate.request import NEVER, Request
from ops.simulate.workload import DRAWS, Workload
from router.queueing import ranked
from schemas import EngineConfig, LoadReport, RouterConfig, RoutingTable

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

    def __init__(self, world: World, layout: Sequence[tuple[str, ...]], policy: Policy) -> None:
        """layout: the methods of each replica."""
        self._world, self._policy = world, policy
        self._numbers = {name: m for m, name in enumerate(world.table.methods)}
        self._order, self._made = count(), count()
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._live: dict[str, tuple[Replica, float]] = {}
        """By name those that take requests, and since when they are there."""
        self._usage: list[Usage] = []
        for methods in layout:
            self._started(0.0, methods, 0.0)
        for moment in world.kills:
            self._at(moment, self._kill)

    def run(self, arrivals: Floats, prompts: NDArray[np.int64], seed: int) -> Outcomes:
        """Prompts [n] of the workload, asked at these times [n], which rise."""
        self._outcomes = Outcomes.of(arrivals)
        workload = self._world.workload
        draws = np.random.default_rng((seed, 8)).integers(0, DRAWS, len(arrivals)).tolist()
        asked = zip(arrivals.tolist(), prompts.tolist(), draws, strict=True)
        now = 0.0
        for number, (now, prompt, draw) in enumerate(asked):
            self._until(now)
            ways = tuple(paths[draw % len(paths)] for paths in workload.paths[prompt])
            self._ask(now, Request(number, now, workload.questions[prompt], ways))
        ended = self._until(NEVER)
        for name in list(self._live):
            self._leaves(name, max(now, ended))
        self._outcomes.usage = self._usage
        return self._outcomes

    def _until(self, moment: float) -> float:
        """Everything that is due by a moment; when the last of it was."""
        events, now = self._events, 0.0
        while events and events[0][0] <= moment:
            now, _, action, given = heappop(events)
            action(now, *given)
        return now

    def _at(self, moment: float, action: Callable[..., None], *given: Any) -> None:
        heappush(self._events, (moment, next(self._order), action, given))

    def _ask(self, now: float, request: Request) -> None:
        """Have it routed, and the methods asked in the policy's order until one has room."""
        loads = self._loads(now)
        request.line = [self._numbers[name] for name in self._policy(request.question, loads)]
        self._place(now, request, loads)

    def _place(self, now: float, request: Request, loads: Sequence[LoadReport]) -> None:
        """The next method in line with room takes it, on the replica with the least burden; where
        there is none it is refused."""
        while request.line:
            method = request.line.pop(0)
            name = self._world.table.methods[method]
            for host in ranked((load for load in loads if name in load.methods), name):
                replica = self._live[host.replica][0]
                before = replica.version
                request.answered_by(method)
                if replica.take(request, now):
                    if replica.version != before:
                        self._at(replica.next, self._advance, replica, replica.version)
                    return

    def _advance(self, now: float, replica: Replica, version: int) -> None:
        if version != replica.version:
            return  # it was put off, or its replica has died
        for request in replica.advance(now):
            self._outcomes.ended(request, now)
        if replica.next != NEVER:
            self._at(replica.next, self._advance, replica, replica.version)

    def _loads(self, now: float) -> list[LoadReport]:
        stale = self._world.report_seconds
        return [replica.report(now, stale) for replica, _ in self._live.values()]

    def _started(self, _now: float, methods: tuple[str, ...], since: float) -> None:
        """A replica takes requests that was wanted `since`."""
        name = f"{'+'.join(methods)}-{next(self._made)}"
        world = self._world
        replica = Replica(name, methods, world.table.methods, world.engine, world.costs)
        self._live[name] = replica, since

    def _leaves(self, name: str, now: float) -> Replica:
        replica, since = self._live.pop(name)
        self._usage.append(
            Usage(now - since, replica.busy_seconds, replica.decode_seconds, replica.batch_seconds)
        )
        return replica

    def _kill(self, now: float) -> None:
        """The replica with the most before it dies; another is started in its place, and its
        requests go on elsewhere from the tokens that are out."""
        loads = self._loads(now)
        if not loads:
            return
        replica = self._leaves(max(loads, key=lambda load: load.outstanding_tokens).replica, now)
        emitted = {request: replica.emitted(request, now) for request in replica.requests}
        replica.version += 1
        self._at(now + self._world.start_seconds, self._started, replica.methods, now)
        for request, tokens in emitted.items():
            request.lost(tokens)
            request.line = request.line or [request.method]
            if request.failures < MOST_FAILURES:
                self._place(now, request, self._loads(now))
