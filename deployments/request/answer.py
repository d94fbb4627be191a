"""Routing a validated prompt and streaming its response."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from deployments import traces
from deployments.artifacts import Embed
from deployments.errors import ApiError, unavailable
from deployments.learning.link import FeedbackLink
from deployments.metrics import Metrics
from deployments.request.answered import (
    Answer,
    Routed,
    all_or_none,
    observation_of,
    sample_of,
    silenced,
)
from deployments.request.calls import Calls, Chunks, MethodStream
from deployments.request.circuits import Circuits
from deployments.request.in_flight import InFlight
from deployments.request.prompt import Conversations, Prompt
from deployments.request.refusals import Refusals
from deployments.request.starting import Starting
from router.cluster import assign, packed
from router.constraints import Constraints
from router.exploration import Explorer
from router.policy import NoMethodAvailableError, choose
from router.predict import counted_output
from router.prompt import Features, predictions
from schemas import Decision, DecodeChunk, DecodeStats, RouterConfig, Sample

logger = logging.getLogger(__name__)

EMBEDDED_TEXTS = 512
"""Texts whose vectors are kept: an agent's calls repeat the user's turn, 28 ms to embed."""
STALE_SECONDS = 30.0
"""Time without the feedback actor after which answers report a stale table."""


@dataclass(frozen=True)
class Served:
    """Hold the served methods.

    streams: how each is called. refusals: which requests each refuses. starting: methods that have
    no replica and can get one. copying: methods that copy from a predicted response. clock: times
    the pauses after failures. seed: of the draws that explore; None: a fresh one.
    """

    streams: Mapping[str, MethodStream]
    refusals: Refusals
    starting: Starting = field(default_factory=lambda: Starting({}))
    copying: frozenset[str] = frozenset()
    clock: Callable[[], float] = time.monotonic
    seed: int | None = None


class Answerer:
    """Route prompts over the served methods and report every response.

    keep_sample: takes answers that drafters may be trained on, without waiting; None: there is no
    training.
    """

    def __init__(
        self,
        served: Served,
        link: FeedbackLink,
        config: RouterConfig,
        embed: Embed | None,
        metrics: Metrics,
        keep_sample: Callable[[Sample], None] | None = None,
    ) -> None:
        streams = served.streams
        self.circuits = Circuits(streams, metrics, served.clock)
        self.in_flight = InFlight(lambda: link.loads, lambda: link.table, served.clock)
        self.calls = Calls(streams, link, self.circuits, self.in_flight)
        self._methods = frozenset(streams)
        self._link = link
        self.config = config
        """Replaced where settings change while it answers."""
        self._embed = None if embed is None else remembered(embed)
        self._metrics = metrics
        self._keep_sample = keep_sample
        self._refusals = served.refusals
        self.starting = served.starting
        self._copying = served.copying
        self._conversations = Conversations()
        self._explorer = Explorer(np.random.default_rng(served.seed))

    async def route(
        self, prompt: Prompt, explore: bool = True
    ) -> tuple[Decision, NDArray[np.float32] | None]:
        """Return the routing decision for a prompt and its unit vector [1, d].

        The vector is None without an encoder, or if the encoder fails. Raises ApiError: 400 if no
        engine takes the prompt's parameters, 503 if no method is admissible.
        """
        started = time.perf_counter()
        excluded = self._refusals.excluded(prompt)
        vector = await self._vector(prompt)
        # Only now: another version may have come while the prompt was embedded.
        table = self._link.table
        cluster, predicted, tokens = -1, {}, len(prompt.token_ids)
        if vector is not None:
            cluster = int(assign(table.centroids, vector)[0])
            [predicted] = predictions(table, vector, [prompt.text], [tokens])
        loads = self.in_flight.present()
        features = Features(
            prompt_tokens=tokens,
            max_tokens=counted_output(table, cluster, prompt.sampling.max_tokens),
            temperature=prompt.sampling.temperature,
            grammar=prompt.sampling.grammar is not None,
            predicted=predicted,
            cluster=cluster,
            held=self.in_flight.held(prompt.token_ids, prompt.scope),
        )
        allowed, ready = prompt.deadline_seconds, self.calls.ready()
        constraints = Constraints(
            pinned=prompt.pinned,
            healthy=ready or self._methods,
            startable=self.starting.startable(ready),
            excluded=excluded,
            resting=self.circuits.resting(),
            deadline_seconds=allowed and allowed - (time.perf_counter() - started),
            conversation_method=self._conversations.method(prompt.scope, prompt.conversation),
            explore=explore and prompt.drafted_as_usual,
            copying=self._copying if prompt.predicted_token_ids else frozenset(),
            slo=prompt.slo,
        )
        explorer = None if self._not_learning() else self._explorer
        try:
            decision = choose(table, features, loads, constraints, self.config, explorer)
        except NoMethodAvailableError as error:
            raise unavailable(str(error)) from error
        return decision, vector

    async def answers(self, prompt: Prompt) -> list[Answer]:
        """Return `prompt.choices` answers under one decision, each with a seed of its own.

        Each response has its first chunk when this returns. If one fails, the others are ended.
        Raises ApiError: 400 if the engine refuses the prompt, 429 if every waiting line is full,
        503 if no replica answers, 504 if the deadline passes.
        """
        started = time.perf_counter()
        decision, vector = await self.route(prompt)
        sent = None if vector is None or not prompt.teaches else packed(vector)
        expected = prompt.sampling.max_tokens
        if not prompt.sampling.ignore_eos:
            expected = counted_output(self._link.table, decision.cluster, expected)
        prompt = replace(prompt, expected_tokens=expected)
        degraded = (*(("no-encoder",) if decision.cluster < 0 else ()), *self._not_learning())
        routed = Routed(decision, sent, degraded, started, time.perf_counter() - started)
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

    async def _answer(self, prompt: Prompt, routed: Routed) -> Answer:
        cut = partial(self._learn_cut, routed.decision, prompt)
        answer = Answer(self.calls, routed, prompt, cut)
        first = await answer.next()
        took = time.perf_counter() - routed.started
        self._metrics.first_chunk.observe(took, tags={"method": answer.method})
        answer.chunks = self._chunks(answer, first)
        return answer

    async def _chunks(self, answer: Answer, chunk: DecodeChunk | None) -> Chunks:
        """Yield the whole response from its first chunk on. Record the observation, the sample and
        the conversation at its end."""
        outcome, prompt = "abandoned", answer.prompt
        try:
            while chunk is not None:
                if prompt.silent:
                    chunk = silenced(chunk)
                prompt.spend(len(chunk.token_ids))
                if chunk.stats is not None:
                    prompt.found(chunk.stats.cached_prompt_tokens)
                if chunk.finish_reason is not None:
                    outcome = chunk.finish_reason
                    answer.stats = chunk.stats
                    if not prompt.silent:
                        self._learn(answer)
                    # Before the client has the last chunk: it may leave then.
                    if (conversation := prompt.conversation) is not None:
                        self._conversations.remember(prompt.scope, conversation, answer.method)
                yield chunk
                chunk = await answer.next()
        except ApiError as error:
            outcome = "deadline" if error.status == 504 else "error"
            raise
        finally:
            self._metrics.requests.inc(
                tags={"method": answer.method, "reason": answer.reason, "outcome": outcome}
            )
            await answer.end_work()

    def _not_learning(self) -> tuple[str, ...]:
        """Return the degraded modes in which nothing is learned from a trial."""
        stale = self._link.age_seconds > STALE_SECONDS
        missing = {"no-feedback": self._link.problem is not None, "stale-table": stale}
        return tuple(mode for mode, is_missing in missing.items() if is_missing)

    def _learn(self, answer: Answer) -> None:
        """Learn from a finished answer, and keep it as a sample."""
        stats, prompt, decision = answer.stats, answer.prompt, answer.decision
        if stats is None or stats.finish_reason not in ("stop", "length"):
            return
        self._metrics.finished(stats, decision.cluster)
        if prompt.drafted_as_usual:
            made = observation_of(decision, stats, prompt)
            own = {"reason": answer.reason, "vector": answer.routed.vector}
            self._link.observe(made.model_copy(update=own))
        # A head learns what the target itself says. Look-ups draft a loop's repeats; a head would
        # only unlearn what else it knows.
        foreign = prompt.sampling.biased or prompt.adapter is not None or stats.looping
        if self._keep_sample and prompt.owner is not None and answer.token_ids and not foreign:
            self._keep_sample(sample_of(answer, prompt.owner))

    def _learn_cut(
        self, decision: Decision, prompt: Prompt, stats: DecodeStats, failed: bool
    ) -> None:
        """Learn from a response as far as it came. Its vector stays out, because another method may
        still answer the prompt."""
        if prompt.drafted_as_usual:
            self._link.observe(observation_of(decision, stats, prompt, failed=failed))

    async def _vector(self, prompt: Prompt) -> NDArray[np.float32] | None:
        if self._embed is None:
            return None
        try:
            return await asyncio.to_thread(self._embed, prompt.scope, prompt.text)
        except Exception as error:  # a prompt is answered even if its embedding is not
            logger.error("the encoder failed, using the default method: %s", error)
            return None


def remembered(embed: Embed) -> Callable[[str, str], NDArray[np.float32]]:
    """Return the function from a scope and a text to the text's vector, which keeps the last
    EMBEDDED_TEXTS. A known text takes less time, so each scope has its own."""

    @lru_cache(EMBEDDED_TEXTS)
    def embedded(_scope: str, text: str) -> NDArray[np.float32]:
        vector = embed(text)
        vector.setflags(write=False)
        return vector

    return embedded
