"""An ingress over replicas of the made-up world, in simulated time.

Routing, calls, circuits and learning are the real ones. A replica's answer is a sequence of pauses.
"""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field

import numpy as np
from observations import load

from deployments.errors import ApiError
from deployments.metrics import Metrics
from deployments.request.answer import Answerer, Served
from deployments.request.answered import interleaved
from deployments.request.prompt import Prompt
from deployments.request.refusals import Refusals
from ops.common.simulated_time import run_simulated
from router.learner import Learner
from schemas import (
    DecodeChunk,
    DecodeRequest,
    DecodeStats,
    LoadReport,
    Observation,
    RouterConfig,
    RoutingTable,
    SamplingParams,
)
from tests.router.routing_world import ACCEPTANCE, STEP, decode_steps

CONFIG = RouterConfig()
TOKENS = 61
PREFILL = 0.02
NOISE = 0.3
"""Standard deviation of an answer's log acceptance."""


@dataclass
class Known:
    """A `FeedbackLink` that learns at once. reports: of a replica that has this method and runs
    steps of so many seconds."""

    learner: Learner
    slower: Mapping[str, float]
    connected: bool = True
    problem: str | None = None
    age_seconds: float = 0.0
    ingresses: int = 1

    @property
    def table(self) -> RoutingTable:
        return self.learner.table

    @property
    def loads(self) -> list[LoadReport]:
        return [
            load(
                f"{name}-0",
                methods=(name,),
                recent_step_seconds={name: STEP[name] * self.slower.get(name, 1.0)},
                free_slots=10_000,
            )
            for name in self.table.methods
        ]

    def observe(self, observation: Observation) -> None:
        now = asyncio.get_running_loop().time()
        self.learner.observe([observation.model_copy(update={"time": now})])


@dataclass
class Simulated:
    """One ingress, asked one prompt after the other.

    slower: by method, a factor on its step time from now on. hung: by method, the step at which it
    hangs. dying: by method, the step at which it fails.
    """

    table: RoutingTable
    slower: dict[str, float] = field(default_factory=dict)
    hung: dict[str, int] = field(default_factory=dict)
    dying: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.state = Known(Learner(self.table), self.slower)
        self._draws = np.random.default_rng(0)
        self._cluster, self._accepted = 0, 1.0
        streams = dict.fromkeys(self.table.methods, self._stream)
        served = Served(streams, Refusals(()))
        self.answerer = Answerer(served, self.state, CONFIG, self._embed, Metrics())
        self.answerer._explorer._rng = np.random.default_rng(1)

    async def ask(
        self,
        cluster: int,
        leaves: float | None = None,
        reads: float = 0.0,
        accepted: float = 1.0,
        **fields: object,
    ) -> tuple[str, str]:
        """Return the method of an answer and how it ended: `whole`, `left` after so many seconds,
        or the status of its error. reads: seconds that the client takes for each chunk. accepted:
        a factor on the prompt's acceptance."""
        self._cluster, self._accepted = cluster, accepted
        given = {"sampling": SamplingParams(max_tokens=128)} | fields
        prompt = Prompt(tuple(range(20)), str(cluster), **given)
        method = ""
        try:
            async with asyncio.timeout(leaves):
                answers = await self.answerer.answers(prompt)
                method = answers[0].method
                async with aclosing(interleaved(answers)) as chunks:
                    async for _ in chunks:
                        if reads:
                            await asyncio.sleep(reads)
        except TimeoutError:
            return method, "left"
        except ApiError as error:
            return method, str(error.status)
        return method, "whole"

    def _embed(self, text: str) -> np.ndarray:
        return np.eye(4, dtype=np.float32)[[int(text)]]

    async def _stream(self, request: DecodeRequest, whole: bool):
        method = request.method
        pause = STEP[method] * self.slower.get(method, 1.0)
        deviation = NOISE * self._draws.standard_normal()
        accepted = self._accepted * ACCEPTANCE[method][self._cluster]
        steps = decode_steps(accepted, deviation, TOKENS)
        clock = asyncio.get_running_loop().time
        began = clock()
        await asyncio.sleep(PREFILL)
        first = clock()
        said = [1, *np.diff(np.linspace(0, TOKENS - 1, steps + 1).round().astype(int)).tolist()]
        for step, tokens in enumerate(said):
            if step == self.hung.get(method):
                await asyncio.Event().wait()
            if step:
                await asyncio.sleep(pause)
            if step == self.dying.get(method):
                raise RuntimeError("gone")
            if not whole:
                yield _chunk(request, tokens)
        stats = DecodeStats(
            request_id=request.request_id,
            method=method,
            temperature=0.0,
            prompt_tokens=20,
            output_tokens=TOKENS,
            context_length=20 + TOKENS,
            target_steps=1 + steps,
            first_token_seconds=first - began,
            decode_seconds=clock() - first,
            total_seconds=clock() - began,
            finish_reason="stop",
        )
        yield DecodeChunk(request_id=request.request_id, text="", finish_reason="stop", stats=stats)


def asked(service: Simulated, times: int = 1, **fields: object) -> list[tuple[str, str]]:
    """Ask one prompt after the other in simulated time. Return how each ended, as `ask` does."""

    async def ends() -> list[tuple[str, str]]:
        return [await service.ask(0, **fields) for _ in range(times)]

    return run_simulated(ends())


def _chunk(request: DecodeRequest, tokens: int) -> DecodeChunk:
    drafted = tuple(position < tokens - 1 for position in range(tokens))
    ids = tuple(range(tokens))
    return DecodeChunk(request_id=request.request_id, text="x", token_ids=ids, drafted=drafted)
