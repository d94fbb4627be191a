"""A run of a world: clients ask ingresses, whose router is the one that serves."""

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from deployments.errors import ApiError
from deployments.learning.link import FeedbackLink
from deployments.metrics import Metrics
from deployments.request.answer import Answerer, Served
from deployments.request.calls import Chunks
from deployments.request.prompt import Prompt
from deployments.request.refusals import Refusals
from ops.simulate.replicas import Machine, Replica, Sequence
from ops.simulate.simulated_time import run_simulated
from ops.simulate.speeds import Changing, Speeds
from ops.simulate.tables import believed_table
from ops.simulate.world import PLAIN, Base, World
from router.adaptation import Adaptation
from schemas import DecodeRequest, Grammar, LoadReport, Observation, RouterConfig, SamplingParams

EXCHANGE_SECONDS = 1.0
"""Between two calls of an ingress to the feedback actor, which learns from what was seen since and
returns its table."""

ACCEPTANCE_SIGMA, SECONDS_SIGMA, TOKENS_SIGMA = 0.35, 0.1, 0.6
"""Of log acceptance, log seconds of steps and log output tokens of answers around the expected."""

FOUND, FOUND_OF = 20, 40
"""The best method is found with the first request from which it answers so many of so many."""


@dataclass
class Asked:
    """One request: what chance makes of it, whichever method answers, and what became of it.

    acceptance, seconds: factors on tokens per step and on the seconds of its steps. part: see
    Sequence. luck: it fails with methods whose share of failures is above. pinned: another tenant's
    method. expected: seconds by method at the choice. least: those of the best method. best: the
    best method of the mean request. spent: expected seconds of attempts that failed. left: seconds
    without pauses after which its client left. latency: seconds of the complete answer.
    """

    cluster: int
    tokens: int
    acceptance: float
    seconds: float
    part: float
    luck: float
    ingress: int
    pinned: str | None = None
    method: str | None = None
    reason: str = "unknown"
    expected: dict[str, float] = field(default_factory=dict)
    least: float = 0.0
    best: str = ""
    spent: float = 0.0
    failed: bool = False
    left: float | None = None
    latency: float | None = None
    decide_seconds: float | None = None

    @property
    def took(self) -> float:
        """Return the seconds that count for the choice, without noise."""
        if self.left is not None:
            return self.left + self.least
        return self.spent + self.least if self.failed else self.expected[self.method or ""]


def drawn(world: World, base: Base, requests: int, seed: int) -> list[Asked]:
    """Return the requests that a seed gives, whatever the router does."""
    rng = np.random.default_rng(seed)
    weights = np.asarray(base.clusters.weights)
    clusters = rng.choice(len(weights), size=requests, p=weights / weights.sum())
    normal, uniform = rng.standard_normal((requests, 3)), rng.random((requests, 4))
    mean = np.log(np.asarray(base.output_tokens)[clusters]) - TOKENS_SIGMA**2 / 2.0
    tokens = np.exp(mean + TOKENS_SIGMA * normal[:, 2]).round()
    asked = [
        Asked(
            cluster=cluster,
            tokens=int(np.clip(tokens[i], 1, world.clients.max_tokens)),
            acceptance=math.exp(ACCEPTANCE_SIGMA * normal[i, 0]),
            seconds=math.exp(SECONDS_SIGMA * normal[i, 1]),
            part=float(uniform[i, 1]),
            luck=float(uniform[i, 2]),
            ingress=int(uniform[i, 3] * world.ingresses),
        )
        for i, cluster in enumerate(clusters.tolist())
    ]
    if (others := world.others) is not None:
        for one, share in zip(asked, uniform[:, 0], strict=True):
            if one.cluster == others.cluster and share < others.share:
                one.pinned = others.method
    return asked


class Ingress:
    """What an ingress knows, in the place of a FeedbackLink: the table and the last reports."""

    connected, problem, age_seconds, epoch, drift, waiting, dropped = True, None, 0.0, 1, None, 0, 0

    def __init__(self, learning: Adaptation, replicas: list[Replica], world: World) -> None:
        self.table, self.ingresses = learning.table, world.ingresses
        self._learning, self._replicas, self._lag = learning, replicas, world.load_lag_seconds
        self._observed: list[Observation] = []
        self._poll()

    @property
    def loads(self) -> list[LoadReport]:
        """Return the last reports, which are up to `load_lag_seconds` old."""
        if not self._lag:
            self._poll()
        return self._reports

    def observe(self, observation: Observation) -> None:
        """Keep an observation until the next exchange."""
        self._observed.append(observation)

    async def exchanging(self, phase: float) -> None:
        """Exchange with the feedback actor for ever; phase: share of the interval to wait first."""
        await _every(EXCHANGE_SECONDS, phase, self._exchange)

    async def polling(self, phase: float) -> None:
        """Fetch the replicas' reports for ever."""
        await _every(self._lag, phase, self._poll)

    def _exchange(self) -> None:
        self._learning.observe(self._observed)
        self.table, self._observed = self._learning.table, []

    def _poll(self) -> None:
        self._reports = [replica.report() for replica in self._replicas]


async def _every(seconds: float, phase: float, call: Callable[[], None]) -> None:
    await asyncio.sleep(phase * seconds)
    while seconds:
        call()
        await asyncio.sleep(seconds)


class Run:
    """The service in a world and its clients. ended: called after each request."""

    def __init__(
        self, world: World, base: Base, asked: list[Asked], seed: int, ended: Callable[[], None]
    ) -> None:
        self.world, self.asked, self._ended = world, asked, ended
        self._machine = Machine(Changing(Speeds.of(base, world.clients), world.truth))
        hosted = [base.methods] if world.layout == "shared" else [(name,) for name in base.methods]
        self._replicas = [
            Replica(f"{methods[0]}-{i}", methods, self._machine)
            for methods in hosted
            for i in range(world.replicas)
        ]
        self._draws, self._next = np.random.default_rng((seed, 1)), 0
        self._pauses: defaultdict[int, float] = defaultdict(float)
        table = believed_table(world, base)
        self._vectors, learning = (
            np.eye(len(base.clusters.weights), dtype=np.float32),
            Adaptation(table),
        )
        self._ingresses = [Ingress(learning, self._replicas, world) for _ in range(world.ingresses)]
        self._answerers: list[Answerer] = []
        for i, ingress in enumerate(self._ingresses):
            streams = dict.fromkeys(base.methods, partial(self._stream, i))
            served = Served(streams, Refusals(()), clock=self._time, seed=seed * 1000 + i)
            link = cast(FeedbackLink, ingress)
            answerer = Answerer(served, link, RouterConfig(), self._embed, Metrics())
            self._answerers.append(answerer)

    async def ask_all(self) -> None:
        """Ask every request and wait for its end."""
        background = [replica.run() for replica in self._replicas]
        for i, ingress in enumerate(self._ingresses):
            phase = i / len(self._ingresses)
            background += [ingress.exchanging(phase), ingress.polling(phase)]
        tasks = [asyncio.create_task(work) for work in background]
        arrivals = self.world.arrivals
        try:
            if arrivals.rate is None:
                await asyncio.gather(*(self._client() for _ in range(arrivals.concurrency)))
            else:
                asking = []
                gaps = self._draws.exponential(1.0 / arrivals.rate, len(self.asked))
                for gap in gaps.tolist():
                    await asyncio.sleep(gap)
                    asking.append(asyncio.create_task(self._ask_next()))
                await asyncio.gather(*asking)
        finally:
            for task in tasks:
                task.cancel()

    async def _client(self) -> None:
        while self._next < len(self.asked):
            await self._ask_next()

    async def _ask_next(self) -> None:
        number, self._next = self._next, self._next + 1
        asked, clients, machine = self.asked[number], self.world.clients, self._machine
        for event in self.world.events:
            if event.at == number:
                machine.speeds.change(event.truth)
                self._pauses[number] += event.pause_seconds
        asked.best = machine.speeds.best
        prompt = Prompt(
            token_ids=(number, *[0] * (clients.prompt_tokens - 1)),
            text=str(asked.cluster),
            sampling=SamplingParams(
                max_tokens=clients.max_tokens,
                temperature=clients.temperature,
                grammar=Grammar(kind="json_object") if clients.grammar else None,
            ),
            pinned=asked.pinned,
            whole=not clients.stream,
            scope="others" if asked.pinned else "",
        )
        began, worked = machine.time, machine.worked
        try:
            async with asyncio.timeout(clients.leave_after_seconds):
                [answer] = await self._answerers[asked.ingress].answers(prompt)
                asked.reason, asked.decide_seconds = answer.decision.reason, answer.routed.seconds
                async with aclosing(answer.chunks) as chunks:
                    async for _ in chunks:
                        pass
            asked.latency = machine.time - began
        except TimeoutError:
            asked.left = machine.worked - worked
        except ApiError:
            asked.failed = True
        self._ended()

    async def _stream(self, ingress: int, request: DecodeRequest, whole: bool) -> Chunks:
        """Answer a request on the replica that its ingress chooses."""
        number, method, speeds = (
            request.prompt_token_ids[0],
            request.method,
            self._machine.speeds.now,
        )
        asked, in_flight = self.asked[number], self._answerers[ingress].in_flight
        if asked.method is None:
            asked.method = method
            asked.expected = {name: sum(self._expected(asked, name)) for name in speeds.methods}
            asked.least = min(speeds.worth(name, took) for name, took in asked.expected.items())
        hosts = {one.name: one for one in self._replicas if method in one.methods}
        first, *_ = in_flight.ranked(self._draws.permutation(list(hosts)).tolist(), request)
        in_flight.placed(request.request_id, first)
        in_flight.accepted(request.request_id, first)
        speed, others = speeds.methods[method], self.world.others
        usual = float(speed.acceptance[asked.cluster])
        if others is not None and asked.pinned is not None:
            usual = others.acceptance
        sequence = Sequence(
            request=request,
            whole=whole,
            length=asked.tokens,
            accepted=1.0 if method == PLAIN else max(1.0, usual * asked.acceptance),
            part=asked.part,
            noise=asked.seconds,
            pauses=self._pauses.pop(number, 0.0),
            fails=asked.luck < speed.fails,
            hangs=speed.hangs,
            arrived=self._machine.time,
        )
        reading, decoding = self._expected(asked, method)
        async with aclosing(hosts[first].answer(sequence)) as chunks:
            async for chunk in chunks:
                if chunk.finish_reason == "error":
                    asked.failed, asked.spent = True, asked.spent + reading + decoding / 2.0
                yield chunk

    def _expected(self, asked: Asked, method: str) -> tuple[float, float]:
        """Return the expected seconds of reading and decoding on the least busy replica."""
        hosts = [one.counts for one in self._replicas if method in one.methods]
        fewest = min(hosts, key=lambda counts: counts.total())
        return self._machine.speeds.now.seconds(method, asked.cluster, fewest)

    def _time(self) -> float:
        return self._machine.time

    def _embed(self, text: str) -> NDArray[np.float32]:
        return self._vectors[[int(text)]]


def simulate(
    world: World, base: Base, requests: int, seed: int, ended: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Return the figures of a run. ended: called after every request."""
    asked = drawn(world, base, requests, seed)

    async def served() -> None:  # replicas need the loop of simulated time
        await Run(world, base, asked, seed, ended).ask_all()

    run_simulated(served())
    own = [one for one in asked if one.pinned is None and one.method is not None]
    latencies = [one.latency for one in own if one.latency is not None]
    decided = [one.decide_seconds for one in own if one.decide_seconds is not None]
    return {
        "requests": len(asked),
        "excess": excess(own),
        "excess_last_quarter": excess(own[len(own) - len(own) // 4 :]),
        "shares": _shares([one.method for one in own]),
        "requests_until_found": requests_until_found(own),
        "latency_mean_s": float(np.mean(latencies)) if latencies else None,
        "latency_p95_s": float(np.percentile(latencies, 95)) if latencies else None,
        "decide_ms": 1000.0 * float(np.median(decided)) if decided else None,
        "reasons": _shares([one.reason for one in own]),
        "failed": sum(one.failed for one in own),
        "left": sum(one.left is not None for one in own),
    }


def excess(asked: list[Asked]) -> float | None:
    """Return the seconds that choices took over those of the best ones, minus 1."""
    best = sum(one.least for one in asked)
    return sum(one.took for one in asked) / best - 1.0 if best else None


def requests_until_found(asked: list[Asked]) -> int | None:
    """Return the first request from which the best method gets FOUND of FOUND_OF; None: never."""
    right = [one.method == one.best for one in asked]
    starts = range(len(right) - FOUND_OF + 1)
    return next((i for i in starts if sum(right[i : i + FOUND_OF]) >= FOUND), None)


def _shares(values: list[Any]) -> dict[str, float]:
    return {str(name): n / len(values) for name, n in Counter(values).most_common()}
