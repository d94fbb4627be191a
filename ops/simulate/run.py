"""A run of a world: clients ask ingresses, whose router is the one that serves."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from deployments.errors import ApiError
from deployments.learning.link import FeedbackLink
from deployments.metrics import Metrics
from deployments.request.answer import Answerer, Served
from deployments.request.calls import Chunks
from deployments.request.prompt import Prompt
from deployments.request.refusals import Refusals
from ops.common.simulated_time import run_simulated
from ops.simulate.replicas import Machine, Replica, Sequence
from ops.simulate.speeds import believed_table, true_speeds
from ops.simulate.world import PLAIN, Base, World
from router.learner import Learner
from schemas import DecodeRequest, Grammar, LoadReport, Observation, RouterConfig, SamplingParams

EXCHANGE_SECONDS = 1.0
"""Between two calls of an ingress to the feedback actor."""

ACCEPTANCE_SIGMA, SECONDS_SIGMA, TOKENS_SIGMA = 0.35, 0.1, 0.6
"""Of log acceptance, log seconds of steps and log output tokens around the expected."""

FOUND, FOUND_OF = 20, 40


@dataclass
class Asked:
    """One request: its random draws, which hold for all methods, and what became of it.

    acceptance, seconds: factors on tokens per step and on the seconds of its steps. part: rounds
    its steps. luck: it fails with methods whose share of failures is above. pauses: seconds of the
    event at its number. pinned: another tenant's method. best: the best method of the mean request.
    expected, least: seconds of the chosen and of the best method at the choice. lost: expected
    seconds of attempts that failed, or seconds without pauses after which its client left; None if
    neither happened. latency: seconds of the complete response.
    """

    cluster: int
    tokens: int
    acceptance: float
    seconds: float
    part: float
    luck: float
    ingress: int
    pauses: float = 0.0
    pinned: str | None = None
    best: str = ""
    method: str | None = None
    expected: float = 0.0
    least: float = 0.0
    lost: float | None = None
    latency: float | None = None
    decide_seconds: float | None = None

    @property
    def took(self) -> float:
        """Return the seconds that count for the choice, without noise."""
        return self.expected if self.lost is None else self.lost + self.least


def drawn(world: World, base: Base, requests: int, seed: int) -> list[Asked]:
    """Return the requests that a seed gives, whatever the router does."""
    rng = np.random.default_rng(seed)
    weights = np.asarray(base.clusters.weights)
    clusters = rng.choice(len(weights), size=requests, p=weights / weights.sum())
    normal, uniform = rng.standard_normal((requests, 3)), rng.random((requests, 4))
    mean = np.log(np.asarray(base.output_tokens)[clusters]) - TOKENS_SIGMA**2 / 2.0
    tokens = np.exp(mean + TOKENS_SIGMA * normal[:, 2]).round()
    factors = np.exp(normal[:, :2] * (ACCEPTANCE_SIGMA, SECONDS_SIGMA)).T.tolist()
    lengths = np.clip(tokens, 1, world.clients.max_tokens).astype(int).tolist()
    ingresses = (uniform[:, 3] * world.ingresses).astype(int).tolist()
    columns = (clusters.tolist(), lengths, *factors, *uniform[:, 1:3].T.tolist(), ingresses)
    asked = [Asked(*row) for row in zip(*columns, strict=True)]
    for event in world.events:
        if event.at < requests:
            asked[event.at].pauses += event.pause_seconds
    if (others := world.others) is not None:
        for one, share in zip(asked, uniform[:, 0], strict=True):
            if one.cluster == others.cluster and share < others.share:
                one.pinned = others.method
    return asked


class Ingress:
    """An ingress's view, in the place of a FeedbackLink: the table and the last load reports."""

    problem, age_seconds = None, 0.0

    def __init__(self, learning: Learner, replicas: list[Replica], world: World) -> None:
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
        now = asyncio.get_running_loop().time()
        self._observed.append(observation.model_copy(update={"time": now}))

    async def work(self, phase: float) -> None:
        """Exchange with the feedback actor and fetch the replicas' reports forever.

        phase: share of an interval to wait first.
        """
        exchanging = _every(EXCHANGE_SECONDS, phase, self._exchange)
        await asyncio.gather(exchanging, _every(self._lag, phase, self._poll))

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
        numbers = (-1, *(event.at for event in world.events))
        self._speeds = {number: true_speeds(world, base, number) for number in numbers}
        self._machine = Machine(self._speeds[-1])
        hosted = [base.methods] if world.layout == "shared" else [(name,) for name in base.methods]
        self._replicas = [
            Replica(f"{methods[0]}-{i}", methods, self._machine)
            for methods in hosted
            for i in range(world.replicas)
        ]
        self._draws, self._next = np.random.default_rng((seed, 1)), 0
        vectors = np.eye(len(base.clusters.weights), dtype=np.float32)[:, None]
        vector_of = {str(k): vector for k, vector in enumerate(vectors)}.__getitem__
        learning = Learner(believed_table(world, base))
        self._ingresses = [Ingress(learning, self._replicas, world) for _ in range(world.ingresses)]
        self._answerers: list[Answerer] = []
        for i, ingress in enumerate(self._ingresses):
            streams = dict.fromkeys(base.methods, partial(self._stream, i))
            served = Served(streams, Refusals(()), clock=self._machine.time, seed=seed * 1000 + i)
            link = cast(FeedbackLink, ingress)
            answerer = Answerer(served, link, RouterConfig(), vector_of, Metrics())
            self._answerers.append(answerer)

    async def ask_all(self) -> None:
        """Ask every request and wait for its end."""
        count, arrivals = len(self._ingresses), self.world.arrivals
        tasks = [asyncio.create_task(one.work(i / count)) for i, one in enumerate(self._ingresses)]
        if arrivals.rate is None:
            clients = [self._client() for _ in range(arrivals.concurrency)]
        else:
            gaps = self._draws.exponential(1.0 / arrivals.rate, len(self.asked))
            clients = [self._ask(i, due) for i, due in enumerate(gaps.cumsum().tolist())]
        await asyncio.gather(*clients)
        for task in tasks:
            task.cancel()

    async def _client(self) -> None:
        while self._next < len(self.asked):
            self._next += 1
            await self._ask(self._next - 1)

    async def _ask(self, number: int, due: float = 0.0) -> None:
        await asyncio.sleep(due)
        asked, clients, machine = self.asked[number], self.world.clients, self._machine
        machine.speeds = self._speeds.get(number, machine.speeds)
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
        began, worked = machine.time(), machine.worked
        try:
            async with asyncio.timeout(clients.leave_after_seconds):
                [answer] = await self._answerers[asked.ingress].answers(prompt)
                asked.decide_seconds = answer.routed.seconds
                async with aclosing(answer.chunks) as chunks:
                    async for _ in chunks:
                        pass
            asked.latency = machine.time() - began
        except TimeoutError:
            asked.lost = machine.worked - worked
        except ApiError:
            asked.lost = asked.lost or 0.0
        self._ended()

    async def _stream(self, ingress: int, request: DecodeRequest, whole: bool) -> Chunks:
        """Answer a request on the replica that its ingress chooses."""
        method, asked = request.method, self.asked[request.prompt_token_ids[0]]
        speeds = self._machine.speeds
        if asked.method is None:
            every = {name: sum(self._expected(asked, name)) for name in speeds.methods}
            asked.method, asked.expected = method, every[method]
            asked.least = min(speeds.worth(name, seconds) for name, seconds in every.items())
        hosts = {one.name: one for one in self._replicas if method in one.methods}
        in_flight = self._answerers[ingress].in_flight
        first, *_ = in_flight.ranked(self._draws.permutation(list(hosts)).tolist(), request)
        in_flight.place(request.request_id, first)
        in_flight.place(request.request_id, first, accepted=True)
        reading, decoding = self._expected(asked, method)
        async with aclosing(hosts[first].answer(self._sequence(asked, request), whole)) as chunks:
            async for chunk in chunks:
                if chunk.finish_reason == "error":
                    asked.lost = (asked.lost or 0.0) + reading + decoding / 2.0
                yield chunk

    def _expected(self, asked: Asked, method: str) -> tuple[float, float]:
        """Return the expected seconds of reading and decoding on the least busy replica."""
        hosts = [one.running for one in self._replicas if method in one.methods]
        running = min(hosts, key=lambda counts: counts.total())
        return self._machine.speeds.seconds(method, asked.cluster, running)

    def _sequence(self, asked: Asked, request: DecodeRequest) -> Sequence:
        speed, others = self._machine.speeds.methods[request.method], self.world.others
        usual = float(speed.acceptance[asked.cluster])
        if others is not None and asked.pinned is not None:
            usual = others.acceptance
        accepted = 1.0 if request.method == PLAIN else max(1.0, usual * asked.acceptance)
        tokens = max(1, asked.tokens - len(request.answered_token_ids))
        # Rounded by chance, so that the mean number of steps is right.
        steps = max(1, math.floor((tokens - 1) / accepted + asked.part)) if tokens > 1 else 0
        pauses, asked.pauses = asked.pauses, 0.0
        fails = asked.luck < speed.fails
        return Sequence(request, tokens, steps, asked.seconds, pauses, fails, speed.hangs)


def simulate(
    world: World, base: Base, requests: int, seed: int, ended: Callable[[], None] = lambda: None
) -> tuple[dict[str, Any], list[Asked]]:
    """Serve requests; call `ended` after each. Return the figures and what became of each."""
    asked = drawn(world, base, requests, seed)

    async def served() -> None:  # replicas need the loop of simulated time
        await Run(world, base, asked, seed, ended).ask_all()

    run_simulated(served())
    return figures_of(asked), asked


def figures_of(asked: list[Asked]) -> dict[str, Any]:
    """Return the figures that `--json` writes; another tenant's requests count as `requests`."""
    own = [one for one in asked if one.pinned is None and one.method is not None]
    latencies = [one.latency for one in own if one.latency is not None]
    decided = [one.decide_seconds for one in own if one.decide_seconds is not None]
    methods = Counter(one.method for one in own).most_common()
    return {
        "requests": len(asked),
        "excess": excess(own),
        "excess_last_quarter": excess(own[len(own) - len(own) // 4 :]),
        "shares": {name: count / len(own) for name, count in methods},
        "requests_until_found": requests_until_found(own),
        "latency_mean_s": float(np.mean(latencies)) if latencies else None,
        "latency_p95_s": float(np.percentile(latencies, 95)) if latencies else None,
        "decide_ms": 1000.0 * float(np.median(decided)) if decided else None,
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
