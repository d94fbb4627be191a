"""Routing a validated prompt and streaming its answer."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from deployments import traces
from deployments.artifacts import Embed
from deployments.errors import ApiError, unavailable
from deployments.metrics import Metrics
from deployments.request.answered import (
    Answer,
    cut_observation_of,
    observation_of,
    sample_of,
    silenced,
)
from deployments.request.attempts import Attempts
from deployments.request.calls import Calls, Chunks, MethodStream
from deployments.request.circuits import Circuits
from deployments.request.conversation import Conversations
from deployments.request.gathering import all_or_none
from deployments.request.in_flight import InFlight
from deployments.request.prompt import Prompt
from deployments.request.refusals import Refusals
from deployments.request.routing_state import RoutingState
from deployments.request.starting import Starting
from router.cluster import assign, packed
from router.constraints import Constraints
from router.policy import NoMethodAvailableError, choose
from router.predict import counted_output
from router.prompt import Features, predictions
from router.trials import Trials
from schemas import Decision, DecodeChunk, DecodeStats, RouterConfig, Sample

logger = logging.getLogger(__name__)

STALE_SECONDS = 30.0
"""Time without the feedback actor after which answers report a stale table."""


@dataclass(frozen=True)
class _Routed:
    """Hold a decision, the prompt's packed vector, the degraded modes, and when the decision began
    and ended."""

    decision: Decision
    vector: bytes | None
    degraded: tuple[str, ...]
    started: float
    made: float

    @property
    def seconds(self) -> float:
        return self.made - self.started

    def deadline(self, prompt: Prompt) -> float | None:
        """Return when the answer has to be complete, on the event loop's clock."""
        if prompt.deadline_seconds is None:
            return None
        spent = time.perf_counter() - self.started
        return asyncio.get_running_loop().time() + prompt.deadline_seconds - spent


@dataclass(frozen=True)
class Served:
    """Hold the served methods.

    streams: how each is called. refusals: which requests each refuses. starting: methods that have
    no replica and can get one. copying: methods that copy from a predicted answer. clock: times the
    pauses after failures. seed: of the draws that explore; None: a fresh one.
    """

    streams: Mapping[str, MethodStream]
    refusals: Refusals
    starting: Starting = field(default_factory=lambda: Starting({}))
    copying: frozenset[str] = frozenset()
    clock: Callable[[], float] = time.monotonic
    seed: int | None = None


class Answerer:
    """Route prompts over the served methods and report every answer.

    keep_sample: takes answers that drafters may be trained on, without waiting; None: there is no
    training.
    """

    def __init__(
        self,
        served: Served,
        state: RoutingState,
        config: RouterConfig,
        embed: Embed | None,
        metrics: Metrics,
        keep_sample: Callable[[Sample], None] | None = None,
    ) -> None:
        streams = served.streams
        self.circuits = Circuits(streams, metrics, served.clock)
        self.in_flight = InFlight(lambda: state.loads, lambda: state.table, served.clock)
        self._calls = Calls(streams, state, self.circuits, self.in_flight)
        self._methods = frozenset(streams)
        self._state = state
        self.config = config
        """Replaced where settings change while it answers."""
        self._embed = embed
        self._metrics = metrics
        self._keep_sample = keep_sample
        self._refusals = served.refusals
        self.starting = served.starting
        self._copying = served.copying
        self._conversations = Conversations()
        self._trials = Trials(np.random.default_rng(served.seed))

    async def route(
        self, prompt: Prompt, explore: bool = True
    ) -> tuple[Decision, NDArray[np.float32] | None]:
        """Return the routing decision for a prompt and its unit vector [1, d].

        The vector is None without an encoder, or if the encoder fails. Raises ApiError: 400 if no
        engine takes the prompt's parameters, 503 if no method is admissible.
        """
        started = time.perf_counter()
        excluded = self._refusals.excluded(prompt)
        vector = await self._vector(prompt.text)
        # Only now: a refit while the prompt was embedded has made other clusters.
        table = self._state.table
        cluster, predicted, tokens = -1, {}, len(prompt.token_ids)
        if vector is not None:
            cluster = int(assign(table.centroids, vector)[0])
            [predicted] = predictions(table, vector, [prompt.text], [tokens])
        loads = self.in_flight.present()
        features = Features(
            prompt_tokens=tokens,
            max_tokens=counted_output(table, cluster, prompt.sampling.max_tokens),
            temperature=prompt.sampling.temperature,
            predicted=predicted,
            cluster=cluster,
            held=self.in_flight.held(prompt.token_ids, prompt.scope),
        )
        allowed, ready = prompt.deadline_seconds, self.ready()
        constraints = Constraints(
            pinned=prompt.pinned,
            healthy=ready or self._methods,
            startable=self.starting.startable(ready),
            excluded=excluded,
            resting=self.circuits.resting(),
            deadline_seconds=allowed and allowed - (time.perf_counter() - started),
            conversation_method=self._conversations.method(prompt.scope, prompt.messages),
            explore=explore and prompt.teaches_acceptance,
            copying=self._copying if prompt.predicted_token_ids else frozenset(),
            slo=prompt.slo,
        )
        self._trials.ingresses = self._state.ingresses
        trials = None if self._not_learning() else self._trials
        try:
            decision = choose(table, features, loads, constraints, self.config, trials)
        except NoMethodAvailableError as error:
            raise unavailable(str(error)) from error
        return decision, vector

    def ready(self) -> frozenset[str]:
        """Return the methods that report a live replica."""
        return self._calls.ready()

    async def answers(self, prompt: Prompt) -> list[Answer]:
        """Return `prompt.choices` answers under one decision, each with a seed of its own.

        Each answer has its first chunk when this returns. If one fails, the others are ended.
        Raises ApiError: 400 if the engine refuses the prompt, 429 if every waiting line is full,
        503 if no replica answers, 504 if the deadline passes.
        """
        started = time.perf_counter()
        decision, vector = await self.route(prompt)
        sent = None if vector is None or not prompt.teaches else packed(vector)
        expected = prompt.sampling.max_tokens
        if not prompt.sampling.ignore_eos:
            expected = counted_output(self._state.table, decision.cluster, expected)
        prompt = replace(prompt, expected_tokens=expected)
        routed = _Routed(decision, sent, self._degraded(decision), started, time.perf_counter())
        self._metrics.decided(decision, routed.seconds, routed.degraded)
        traces.decided(decision, routed.seconds)
        if decision.starts is not None:
            self.starting.start(decision.starts)
        # The vector goes with the first of them: the prompt was asked once.
        rest = replace(routed, vector=None)
        answering = [
            self._answer(prompt.further(index), rest if index else routed)
            for index in range(prompt.choices)
        ]
        return await all_or_none(answering, Answer.close)

    async def _answer(self, prompt: Prompt, routed: _Routed) -> Answer:
        decision, deadline = routed.decision, routed.deadline(prompt)
        cut = partial(self._learn_cut, decision, prompt)
        attempts = Attempts(self._calls, self.circuits, decision, prompt, deadline, cut)
        stream = attempts.chunks()
        first = await anext(stream)
        answer = Answer(
            attempts.request_id,
            attempts.method,
            "failover" if attempts.failed_over else decision.reason,
            decision,
            routed.vector,
            routed.degraded,
            routed.seconds,
            stream,
        )
        took = time.perf_counter() - routed.started
        self._metrics.first_chunk.observe(took, tags={"method": answer.method})
        answer.chunks = self._observed(answer, prompt, first, attempts)
        return answer

    async def _observed(
        self, answer: Answer, prompt: Prompt, first: DecodeChunk, attempts: Attempts
    ) -> Chunks:
        """Yield the whole answer, then record the observation and the conversation."""
        outcome, text = "abandoned", []
        try:
            async with aclosing(answer.source) as rest:
                chunk: DecodeChunk | None = first
                while chunk is not None:
                    if prompt.silent:
                        chunk = silenced(chunk)
                    if attempts.method != answer.method:
                        answer.goes_on(attempts.method, attempts.earlier_tokens)
                    text.append(chunk.text)
                    prompt.spend(len(chunk.token_ids))
                    if chunk.stats is not None:
                        prompt.found(chunk.stats.cached_prompt_tokens)
                    if chunk.finish_reason is not None:
                        outcome = chunk.finish_reason
                        answer.stats = chunk.stats
                        if not prompt.silent:
                            self._learn(answer, chunk.stats, prompt)
                            self._sample(answer, prompt, attempts.token_ids)
                        # Before the client has the last chunk: it may leave then.
                        if prompt.messages:
                            said = prompt.repeated("".join(text))
                            scope, messages = prompt.scope, prompt.messages
                            self._conversations.remember(scope, messages, said, answer.method)
                    yield chunk
                    chunk = await anext(rest, None)
        except ApiError as error:
            outcome = "deadline" if error.status == 504 else "error"
            raise
        finally:
            self._metrics.requests.inc(
                tags={"method": answer.method, "reason": answer.reason, "outcome": outcome}
            )

    def _degraded(self, decision: Decision) -> tuple[str, ...]:
        """Return the degraded modes of a decision."""
        encoder = ("no-encoder",) if decision.cluster < 0 else ()
        return encoder + self._not_learning()

    def _not_learning(self) -> tuple[str, ...]:
        """Return the degraded modes in which a trial would teach nothing."""
        stale = self._state.age_seconds > STALE_SECONDS
        missing = {"no-feedback": self._state.problem is not None, "stale-table": stale}
        return tuple(mode for mode, is_missing in missing.items() if is_missing)

    def _learn(self, answer: Answer, stats: DecodeStats | None, prompt: Prompt) -> None:
        if stats is None or stats.finish_reason not in ("stop", "length"):
            return
        decision = answer.decision
        self._metrics.finished(stats, decision.cluster)
        if prompt.teaches_acceptance:
            self._trials.settle(self._state.table, decision, stats, prompt.choices)
        if prompt.drafted_as_usual:
            self._state.observe(observation_of(answer, stats, prompt))

    def _learn_cut(self, decision: Decision, prompt: Prompt, stats: DecodeStats) -> None:
        """Learn the step time and the acceptance of an answer as far as it came."""
        if decision.reason == "exploration":
            self._trials.settle(self._state.table, decision, stats, prompt.choices)
        if prompt.drafted_as_usual:
            self._state.observe(cut_observation_of(decision, stats, prompt))

    def _sample(self, answer: Answer, prompt: Prompt, token_ids: Sequence[int]) -> None:
        if self._keep_sample is None or prompt.owner is None or answer.stats is None:
            return
        # A head learns what the target itself says.
        if prompt.sampling.biased or prompt.adapter is not None:
            return
        # Look-ups draft a loop's repeats; a head would only unlearn what else it knows.
        finished = answer.stats.finish_reason in ("stop", "length") and not answer.stats.looping
        if finished and token_ids:
            self._keep_sample(sample_of(answer, prompt, token_ids, prompt.owner))

    async def _vector(self, text: str) -> NDArray[np.float32] | None:
        if self._embed is None:
            return None
        try:
            return await asyncio.to_thread(self._embed, text)
        except Exception as error:  # a prompt is answered even if its embedding is not
            logger.error("the encoder failed, using the default method: %s", error)
            return None
