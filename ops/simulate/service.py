"""A simulated service: arrivals, the serving policy, replicas, and the requests' outcomes."""

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ops.load.arrivals import Floats
from ops.load.policies import Policy, Routed
from ops.simulate.agenda import Agenda
from ops.simulate.cores import Cores, Machine
from ops.simulate.fleet import LOOK_SECONDS, Methods, Replicas
from ops.simulate.ingress import Ingress
from ops.simulate.ingress_work import IngressWork
from ops.simulate.learning import Learning
from ops.simulate.outcomes import Outcomes
from ops.simulate.replicas.replica import Replica
from ops.simulate.workload import DRAWS, NEVER, Request
from ops.simulate.world import World
from router.predict import counted_output
from schemas import MethodDeployment, RoutingTable

MOST_FAILURES = 2
"""Replicas that may die under a request before it is given up, as in
`deployments.request.attempts`."""

THINK_SECONDS = 5.0
"""From an answer's end until its conversation's next turn is asked."""


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
        self._agenda = Agenda(self._cores)
        places = NEVER if world.overhead.cores is None else world.ingresses
        self._ingress_work = IngressWork(self._agenda, self._cores, places)
        machine = Machine(
            *(world.engine, world.costs, self._cores, world.overhead.stream_seconds),
            *(world.turns > 1, world.report_prefixes),
        )
        self._ingresses = [Ingress(lambda: self._table, seed) for seed in range(world.ingresses)]
        self._replicas = Replicas(world.table, machine, scales)
        self._queues: dict[Methods, deque[Request]] = {methods: deque() for methods in scales}
        self._hosts: dict[int, Replica] = {}
        """The replica of each request that has one."""
        for methods in layout:
            self._ready(0.0, self._replicas.want(0.0, methods))
        for moment in world.kills:
            self._agenda.at(moment, self._kill)

    def run(self, arrivals: Floats, prompts: NDArray[np.int64], seed: int) -> Outcomes:
        """Simulate conversations about prompts [n] that begin at rising times [n].

        Each later turn asks the same prompt again, after all that was said before.
        """
        turns = self._world.turns
        self._outcomes = Outcomes.of(len(arrivals), turns)
        self._left = len(arrivals)
        """Conversations that have not ended."""
        if self.learning is not None:
            self.learning.runs += 1
        draws = np.random.default_rng((seed, 8))
        self._draws: list[int] = draws.integers(0, DRAWS, len(arrivals) * turns).tolist()
        through = draws.integers(0, len(self._ingresses), len(arrivals) * turns)
        self._through: list[int] = through.tolist()
        self._prompts = prompts.tolist()
        if self._queues:
            self._agenda.at(0.0, self._look)
        for conversation, now in enumerate(arrivals.tolist()):
            self._agenda.until(now)
            self._send(now, conversation * turns, ())
        self._agenda.until(NEVER)
        self._outcomes.last += self._world.overhead.reply_seconds
        end = max(arrivals[-1], np.nanmax(self._outcomes.last, initial=0.0))
        self._outcomes.usage = list(self._replicas.close(float(end)))
        return self._outcomes

    @property
    def _table(self) -> RoutingTable:
        """The table in force."""
        return self._policy.table if isinstance(self._policy, Routed) else self._world.table

    def _ingress(self, request: Request) -> Ingress:
        return self._ingresses[self._through[request.number]]

    def _poll(self, now: float, ingress: Ingress) -> None:
        """An ingress gets the load reports, again and again until nothing changes any more."""
        seconds = self._world.report_seconds
        ingress.polled(self._replicas.loads(seconds))
        ingress.awake = seconds > 0.0 and not self._replicas.idle
        if ingress.awake:
            self._agenda.at(now + seconds, self._poll, ingress)

    def _send(self, now: float, number: int, told: tuple[int, ...]) -> None:
        """A turn after what was told is on its way through HTTP and the ingress, which is work."""
        conversation, turn = divmod(number, self._world.turns)
        workload, prompt = self._world.workload, self._prompts[conversation]
        ways = tuple(paths[self._draws[number] % len(paths)] for paths in workload.paths[prompt])
        question, scope = workload.questions[prompt], ""
        if self._world.turns > 1:
            question, scope = question.after(told), str(conversation)
        request = Request(number, now, question, ways, turn, scope)
        self._outcomes.arrived[number] = now
        if self._world.given_seconds != NEVER:
            self._agenda.at(now + self._world.given_seconds, self._cut, request)
        self._ingress_work.add(now, self._world.overhead.request_seconds, self._ask, request)

    def _ask(self, now: float, request: Request) -> None:
        """Have it routed, and the methods asked in the policy's order until one has room."""
        ingress = self._ingress(request)
        if request.cut:
            self._outcomes.cut(request)
            self._left -= 1
            return
        if not ingress.awake:
            self._poll(now, ingress)
        if request.scope:
            ingress.hold(request)
        if isinstance(self._policy, Routed) and (deadline := self._world.deadline) is not None:
            self._policy.deadline_seconds = max(0.0, request.arrival + deadline - now)
        if self.learning is None:
            names = self._policy(request.question, ingress.loads())
        else:
            names = self.learning.ordered(now, request, ingress.loads())
        features = request.question.features
        request.counted = counted_output(self._table, request.question.cluster, features.max_tokens)
        request.line = [self._numbers[name] for name in names]
        request.handed = now
        self._place(request)

    def _place(self, request: Request) -> None:
        """The next method in line with room takes it, on the replica with the least burden; where
        there is none it is refused, or waits for a replica of those that come and go."""
        ingress = self._ingress(request)
        while request.line:
            method = request.line.pop(0)
            name = self._world.table.methods[method]
            request.answered_by(method)
            ingress.begin(request, name)
            hosts = [one for one in self._replicas.live.values() if name in one.methods]
            if self._handed(request, hosts):
                return
            for methods, queue in self._queues.items():
                if name in methods and len(queue) < self._replicas.scalers[methods].held:
                    queue.append(request)
                    return
            ingress.give_up(request)
        self._left -= 1

    def _handed(self, request: Request, hosts: Sequence[Replica]) -> bool:
        """Return whether one of the replicas takes it, the best one first."""
        names = self._ingress(request).order(request, [host.name for host in hosts])
        return any(self._replicas.has_room(n) and self._taken(request, n) for n in names)

    def _taken(self, request: Request, name: str) -> bool:
        replica = self._replicas.live[name]
        before = replica.version
        if not replica.take(request):
            return False
        self._ingress(request).accepted(request, name)
        self._hosts[request.number] = replica
        self._follow(replica, before)
        return True

    def _follow(self, replica: Replica, before: int) -> None:
        """Schedule a replica's next event if it has another one than before."""
        if replica.version != before:
            self._agenda.after(replica.next, self._advance, replica, replica.version)

    def _advance(self, now: float, replica: Replica, version: int) -> None:
        if version != replica.version:
            return  # it was put off, or its replica has died
        ended = replica.advance()
        if replica.next != NEVER:
            self._agenda.after(replica.next, self._advance, replica, replica.version)
        for request in ended:
            del self._hosts[request.number]
            if request.cut:
                self._cut_off(now, request)
            else:
                self._ingress(request).ended(request)
                self._ingress_work.add(now, 0.0, self._replied, request)
                if self.learning is not None:
                    self.learning.ended(now, request, self._world.table.methods[request.method])
            self._replicas.ended(replica, request, now)
        if ended and self._queues:
            self._from_queue(replica.methods)

    def _cut(self, now: float, request: Request) -> None:
        """A request's client leaves, or its deadline has passed."""
        request.cut = True
        replica = self._hosts.get(request.number)
        if replica is not None:
            before = replica.version
            if replica.leave(request):
                del self._hosts[request.number]
                self._cut_off(now, request)
            self._follow(replica, before)
            return
        for queue in self._queues.values():
            if request in queue:
                queue.remove(request)
                self._cut_off(now, request)

    def _cut_off(self, now: float, request: Request) -> None:
        ingress = self._ingress(request)
        if self.learning is not None:
            self.learning.cut(now, request, *ingress.of(request))
        ingress.give_up(request)
        self._outcomes.cut(request)
        self._left -= 1

    def _replied(self, now: float, request: Request) -> None:
        self._outcomes.ended(request, now)
        told, asked = request.told, self._prompts[request.number // self._world.turns]
        features = self._world.workload.questions[asked].features
        whole = len(told) + features.prompt_tokens + features.max_tokens
        if request.turn + 1 < self._world.turns and whole <= self._world.engine.max_context:
            self._agenda.at(now + THINK_SECONDS, self._send, request.number + 1, told)
        else:
            self._left -= 1

    def _from_queue(self, methods: Methods) -> None:
        """Whoever waits goes to replicas that have room again."""
        queue = self._queues.get(methods)
        while queue:
            hosts = [r for r in self._replicas.live.values() if r.methods == methods]
            if not self._handed(queue[0], hosts):
                return
            queue.popleft()

    def _ready(self, _now: float, name: str) -> None:
        if self._replicas.ready(name):
            self._from_queue(self._replicas.live[name].methods)

    def _start(self, now: float, methods: Methods) -> None:
        name = self._replicas.want(now, methods)
        self._agenda.at(now + self._world.start_seconds, self._ready, name)

    def _look(self, now: float) -> None:
        """Whether other numbers of replicas are wanted."""
        for methods, queue in self._queues.items():
            for _ in range(self._replicas.change(now, methods, len(queue))):
                self._start(now, methods)
        if self._left:
            self._agenda.at(now + LOOK_SECONDS, self._look)

    def _kill(self, now: float) -> None:
        """The replica with the most before it dies; another is started in its place, and its
        requests go on elsewhere from the tokens that are out."""
        loads = self._replicas.loads(self._world.report_seconds)
        if not loads:
            return
        busiest = max(loads, key=lambda load: load.outstanding_tokens)
        replica = self._replicas.die(busiest.replica, now)
        emitted = {request: replica.emitted(request) for request in replica.requests}
        self._start(now, replica.methods)
        for request, tokens in emitted.items():
            del self._hosts[request.number]
            self._ingress(request).give_up(request)
            request.lost(tokens)
            request.line = request.line or [request.method]
            if request.failures < MOST_FAILURES and not request.cut:
                self._place(request)
            else:
                self._left -= 1
