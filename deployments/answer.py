"""From a validated prompt to a stream of chunks: route, call, fail over, observe."""

import asyncio
import hashlib
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from deployments.api_error import ApiError, broken_off, line_full, unavailable
from deployments.artifacts import Embed
from deployments.conversation import Conversations
from deployments.in_flight import InFlight
from deployments.link import FeedbackLink
from deployments.metrics import Metrics
from router.cluster import assign
from router.policy import Constraints, Features, NoMethodAvailableError, choose
from schemas import (
    Decision,
    DecodeChunk,
    DecodeRequest,
    DecodeStats,
    Observation,
    RouterConfig,
    SamplingParams,
)
from workers.engine import EngineBusyError, EngineRefusedError

logger = logging.getLogger(__name__)

_WATCH_SECONDS = 0.5

Chunks = AsyncGenerator[DecodeChunk, None]
# (request, whole) -> the answer; raises EngineRefusedError or EngineBusyError at first, anything
# else where the replica is gone.
MethodStream = Callable[[DecodeRequest, bool], Chunks]


class MethodLostError(RuntimeError):
    """The method's replicas went away before the first chunk."""


@dataclass(frozen=True)
class Prompt:
    """A request ready to be routed. `whole` asks for the answer in one piece, `choices` for so many
    answers."""

    token_ids: tuple[int, ...]
    text: str
    sampling: SamplingParams
    messages: tuple[Mapping[str, str], ...] = ()
    pinned: str | None = None
    whole: bool = False
    choices: int = 1


@dataclass
class Answer:
    """An answer whose first chunk is there; `method` is the one that really answers.

    `chunks` is to be read, `source` is where they come from.
    """

    request_id: str
    method: str
    reason: str
    decision: Decision
    routing_seconds: float
    source: Chunks
    chunks: Chunks
    stats: DecodeStats | None = field(default=None)

    async def close(self) -> None:
        """End the answer and the work on it, whether or not anything was read."""
        await self.chunks.aclose()
        # a generator that was never started does not close what it reads from
        await self.source.aclose()


class Answerer:
    """Routes prompts over the methods and reports what came of it."""

    def __init__(
        self,
        streams: Mapping[str, MethodStream],
        link: FeedbackLink,
        config: RouterConfig,
        embed: Embed | None,
        metrics: Metrics,
    ) -> None:
        self._streams = streams
        self._link = link
        self._config = config
        self._embed = embed
        self._metrics = metrics
        self._conversations = Conversations()
        self._in_flight = InFlight()
        self._rng = np.random.default_rng()

    async def route(self, prompt: Prompt, explore: bool = True) -> Decision:
        """Where the prompt would go now. Raises ApiError 503 where no method is admissible."""
        table = self._link.table
        cluster = await self._cluster(prompt.text)
        if cluster < 0:
            self._metrics.degraded.inc()
        features = Features(
            prompt_tokens=len(prompt.token_ids),
            max_tokens=prompt.sampling.max_tokens,
            temperature=prompt.sampling.temperature,
        )
        constraints = Constraints(
            pinned=prompt.pinned,
            healthy=self.ready() or frozenset(self._streams),
            conversation_method=self._conversations.method(prompt.messages),
            explore=explore,
        )
        loads = self._in_flight.added_to(self._link.loads)
        try:
            return choose(table, cluster, features, loads, constraints, self._rng, self._config)
        except NoMethodAvailableError as error:
            raise unavailable(str(error)) from error

    def ready(self) -> frozenset[str]:
        """The methods with a live replica, as far as is known."""
        live = {m for load in self._link.loads if load.healthy for m in load.methods}
        return frozenset(live & self._streams.keys())

    async def answers(self, prompt: Prompt) -> list[Answer]:
        """The answers (`prompt.choices` of them) of the best method that gives a first chunk, all
        under one decision and each with a seed of its own.

        Raises ApiError: 400 where the engine refuses the prompt, 429 where every waiting line
        is full, 503 where no replica answers; the other answers end then.
        """
        started = time.perf_counter()
        decision = await self.route(prompt)
        routed = time.perf_counter()
        self._metrics.decision.observe(routed - started)
        choices = [_choice(prompt, index) for index in range(prompt.choices)]
        tasks = [
            asyncio.ensure_future(self._answer(choice, decision, started, routed - started))
            for choice in choices
        ]
        try:
            return await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, Answer):
                    await result.close()
            raise

    async def _answer(
        self, prompt: Prompt, decision: Decision, started: float, routing_seconds: float
    ) -> Answer:
        request_id = uuid.uuid4().hex
        busy = False
        others = [method for method in decision.ranked if method != decision.method]
        for attempt, method in enumerate([decision.method, *others]):
            request = DecodeRequest(
                request_id=request_id,
                method=method,
                prompt_token_ids=prompt.token_ids,
                sampling=prompt.sampling,
            )
            stream = self._sent(request, prompt.whole)
            try:
                first = await self._first(method, stream)
            except EngineRefusedError as error:
                raise ApiError(400, str(error), code="invalid_request") from error
            except EngineBusyError:
                busy = True
                continue
            except Exception as error:  # whatever a replica died of, another may answer
                logger.warning("%s gave no first chunk: %s", method, error)
                continue
            self._metrics.first_chunk.observe(
                time.perf_counter() - started, tags={"method": method}
            )
            reason = "failover" if attempt else decision.reason
            answer = Answer(request_id, method, reason, decision, routing_seconds, stream, stream)
            answer.chunks = self._observed(answer, prompt, first, stream)
            return answer
        raise line_full() if busy else unavailable("no replica could answer")

    async def _sent(self, request: DecodeRequest, whole: bool) -> Chunks:
        with self._in_flight.sent(request):
            async with aclosing(self._streams[request.method](request, whole)) as chunks:
                async for chunk in chunks:
                    yield chunk

    async def _first(self, method: str, stream: Chunks) -> DecodeChunk:
        """The first chunk; closes `stream` where there is none.

        A replica that dies is noticed by its silence, since Ray Serve would otherwise hold the
        request until a new one has started.
        """
        pending = asyncio.ensure_future(anext(stream))
        known_alive = method in self.ready()
        try:
            while not pending.done():
                await asyncio.wait({pending}, timeout=_WATCH_SECONDS)
                if known_alive and not pending.done() and method not in self.ready():
                    raise MethodLostError(f"{method} has no live replica")
            first = pending.result()
            if first.finish_reason in ("error", "cancelled"):
                raise MethodLostError(first.error or first.finish_reason)
            return first
        except BaseException:
            pending.cancel()
            await asyncio.wait({pending})
            await stream.aclose()
            raise

    async def _observed(
        self, answer: Answer, prompt: Prompt, first: DecodeChunk, rest: Chunks
    ) -> Chunks:
        """The whole answer; at its end the observation and the conversation are recorded."""
        outcome, text = "abandoned", []
        try:
            async with aclosing(rest):
                chunk: DecodeChunk | None = first
                while chunk is not None:
                    text.append(chunk.text)
                    if chunk.finish_reason in ("error", "cancelled"):
                        raise MethodLostError(chunk.error or chunk.finish_reason)
                    if chunk.finish_reason is not None:
                        outcome = chunk.finish_reason
                        self._learn(answer, chunk.stats)
                    yield chunk
                    chunk = await anext(rest, None)
            if outcome == "abandoned":
                raise MethodLostError("the stream ended without a last chunk")
            if prompt.messages:
                self._conversations.remember(prompt.messages, "".join(text), answer.method)
        except Exception as error:  # part of the answer is out: too late for another method
            outcome = "error"
            logger.warning("%s broke off: %s", answer.method, error)
            raise broken_off(answer.method) from error
        finally:
            self._metrics.requests.inc(
                tags={
                    "method": answer.method,
                    "cluster": str(answer.decision.cluster),
                    "reason": answer.reason,
                    "outcome": outcome,
                }
            )

    def _learn(self, answer: Answer, stats: DecodeStats | None) -> None:
        answer.stats = stats
        if stats is None or stats.finish_reason not in ("stop", "length"):
            return
        decision = answer.decision
        self._metrics.output_tokens.inc(stats.output_tokens, tags={"method": stats.method})
        self._link.observe(
            Observation(
                stats=stats,
                cluster=decision.cluster,
                fit_id=decision.fit_id,
                table_version=decision.table_version,
                policy=decision.policy,
                reason=answer.reason,
                propensity=decision.propensity,
                time=time.time(),
            )
        )

    async def vector(self, text: str) -> NDArray[np.float32] | None:
        """The prompt's unit vector [1, d]; None where there is no encoder or it failed."""
        if self._embed is None:
            return None
        try:
            return await asyncio.to_thread(self._embed, text)
        except Exception as error:  # a prompt is answered even if its embedding is not
            logger.error("the encoder failed, using the default method: %s", error)
            return None

    async def _cluster(self, text: str) -> int:
        vector = await self.vector(text)
        return -1 if vector is None else int(assign(self._link.table.centroids, vector)[0])


def _choice(prompt: Prompt, index: int) -> Prompt:
    """The prompt of one of several answers: the first keeps the seed, the others derive theirs."""
    seed = prompt.sampling.seed
    if index == 0 or seed is None:
        return prompt
    digest = hashlib.blake2b(f"{seed}/{index}".encode(), digest_size=7).digest()
    sampling = prompt.sampling.model_copy(update={"seed": int.from_bytes(digest)})
    return replace(prompt, sampling=sampling)
