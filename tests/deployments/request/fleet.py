"""Simulated replicas of one method behind ingresses whose reports lag."""

import random
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from deployments.request.in_flight import InFlight
from schemas import DecodeRequest, LoadReport, RoutingTable, SamplingParams
from tests.router.routing_world import STEP

TICK, REPORT_TICKS = 0.02, 12
BATCH = 8
METHOD, ACCEPTED = "draft", 2.5
USUAL, LONGEST = 60, 2048
"""Output tokens of an answer on the mean, and what some clients allow."""


@dataclass
class Job:
    """A request on its way, and the tokens it has left."""

    request: DecodeRequest
    tokens: float
    left: float
    arrived: float
    view: InFlight


@dataclass
class Replica:
    """Decodes up to BATCH sequences at once, `speed` times as fast as profiled."""

    name: str
    speed: float
    running: list[Job] = field(default_factory=list)
    waiting: deque[Job] = field(default_factory=deque)
    step: float | None = None
    batch: int = 0

    def tick(self) -> list[Job]:
        """Decode for a tick; return the jobs that end."""
        while self.waiting and len(self.running) < BATCH:
            self.running.append(self.waiting.popleft())
        if not self.running:
            return []
        self.batch = len(self.running)
        self.step = seconds_per_step(self.batch) / self.speed
        for job in self.running:
            job.left -= ACCEPTED * TICK / self.step
        ended = [job for job in self.running if job.left <= 0.0]
        self.running = [job for job in self.running if job.left > 0.0]
        return ended

    def report(self) -> LoadReport:
        jobs = [*self.running, *self.waiting]
        left = {j.request.request_id: j.request.outstanding(int(j.tokens - j.left)) for j in jobs}
        return LoadReport(
            replica=self.name,
            methods=(METHOD,),
            running=len(self.running),
            waiting=len(self.waiting),
            running_by_method={METHOD: len(self.running)} if self.running else {},
            outstanding_tokens=sum(left.values()),
            requests=left,
            mean_batch=self.batch,
            recent_step_seconds={} if self.step is None else {METHOD: self.step},
            free_slots=10_000,
            slots_each=100,
            time=0.0,
        )


def seconds_per_step(batch: int) -> float:
    return STEP[METHOD] * (0.7 + 0.3 * batch)


def served(
    table: RoutingTable | None,
    speeds: list[float],
    *,
    ingresses: int = 1,
    load: float = 0.8,
    seconds: float = 30.0,
    counted: int | None = USUAL,
) -> np.ndarray:
    """Return the seconds of every answer [n].

    Requests arrive at this share of what the replicas can decode in full batches.

    A fifth of the clients allow LONGEST tokens. counted: tokens that loads count for a request;
    None: what its client allows. table: tells how fast each replica is.
    """
    draws, shuffled = np.random.default_rng(0), random.Random(0)
    replicas = {f"r{i}": Replica(f"r{i}", speed) for i, speed in enumerate(speeds)}
    views = [Reports(replicas) for _ in range(ingresses)]
    sending = [InFlight(view.reports, lambda: table) for view in views]
    rate = load * sum(speeds) * BATCH * ACCEPTED / seconds_per_step(BATCH) / USUAL
    arrivals = np.sort(draws.uniform(0.0, seconds, draws.poisson(rate * seconds))).tolist()
    took: list[float] = []
    sent = tick = 0
    while sent < len(arrivals) or any(r.running or r.waiting for r in replicas.values()):
        now = tick * TICK
        if tick % REPORT_TICKS == 0:
            for view in views:
                view.renew()
        while sent < len(arrivals) and arrivals[sent] <= now:
            allowed = LONGEST if draws.random() < 0.2 else 256
            tokens = min(allowed, max(2, int(draws.exponential(USUAL))))
            request = DecodeRequest(
                request_id=str(sent),
                method=METHOD,
                prompt_token_ids=(1,),
                sampling=SamplingParams(max_tokens=allowed),
                expected_tokens=counted,
            )
            view = sending[int(draws.integers(ingresses))]
            view.begin(request)
            names = list(replicas)
            shuffled.shuffle(names)
            taken = view.ranked(names, request)[0]
            view.accepted(request.request_id, taken)
            job = Job(request, tokens, tokens, arrivals[sent], view)
            replicas[taken].waiting.append(job)
            sent += 1
        for replica in replicas.values():
            for job in replica.tick():
                took.append(now + TICK - job.arrived)
                job.view.ended(job.request.request_id)
        tick += 1
    return np.asarray(took)


class Reports:
    """The replicas' reports as one ingress has them."""

    def __init__(self, replicas: dict[str, Replica]) -> None:
        self._replicas = replicas
        self.renew()

    def renew(self) -> None:
        self._known = [replica.report() for replica in self._replicas.values()]

    def reports(self) -> list[LoadReport]:
        return self._known
