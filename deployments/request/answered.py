"""Answers on their way to their client, and the observations made of them."""

import asyncio
import json
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import TypeVar

from deployments.errors import GIVEN_UP, REQUEST_FAULT, ApiError, overloaded, unavailable
from deployments.request.calls import Call, Calls, Chunks, Cut, DeadlineError
from deployments.request.prompt import Prompt
from schemas import Decision, DecodeChunk, DecodeRequest, DecodeStats, Observation, Sample
from workers.engine import EngineBusyError, EngineRefusedError, RequestFaultError

logger = logging.getLogger(__name__)

MOST_FAILURES = 2
"""A request that failed so many times is given up: it may be what kills replicas, and must not
reach them all."""

_OF_PROMPT = DecodeRequest.model_fields.keys() & {one.name for one in fields(Prompt)}
"""Fields that a request to an engine has of its prompt."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Routed:
    """Hold a decision and how it was made.

    vector: the prompt's packed vector, on one of the prompt's answers. degraded: what was missing
    when the prompt was routed (`no-encoder`, `no-feedback`, `stale-table`). started: when, in
    seconds of `perf_counter`.
    """

    decision: Decision
    vector: bytes | None
    degraded: tuple[str, ...]
    started: float
    seconds: float

    def deadline(self, prompt: Prompt) -> float | None:
        """Return when the response has to be complete, on the event loop's clock."""
        if prompt.deadline_seconds is None:
            return None
        spent = time.perf_counter() - self.started
        return asyncio.get_running_loop().time() + prompt.deadline_seconds - spent


class Answer:
    """Answer a prompt by the methods of a decision, in order, until one has completed the response.

    If only one method may answer, it is tried once more when it fails. The second attempt avoids
    the replica of the first, unless no other one can answer.
    """

    chunks: Chunks
    """What to read."""

    def __init__(self, calls: Calls, routed: Routed, prompt: Prompt, cut: Cut) -> None:
        self.routed, self.prompt = routed, prompt
        self.decision = decision = routed.decision
        self.request_id = uuid.uuid4().hex
        self.method, self.reason = decision.method, str(decision.reason)
        """The method that answers, and why."""
        self.token_ids: list[int] = []
        """The response so far."""
        self.earlier_tokens = 0
        """Tokens emitted by an attempt that then failed."""
        self.stats: DecodeStats | None = None
        """Of the method that finished the response."""
        others = [method for method in decision.ranked if method != decision.method]
        self._attempts = enumerate([decision.method, *(others or [decision.method])])
        self._calls, self._deadline, self._cut = calls, routed.deadline(prompt), cut
        self._call: Call | None = None
        self._failed_over = self._began = self._busy = False
        self._failures: list[Exception] = []

    async def next(self) -> DecodeChunk | None:
        """Return the next chunk, None after the last one. If a method fails, the next one continues
        after the tokens already sent.

        Raises ApiError. Before the first chunk: 400 if the engine refuses the prompt, 429 if every
        waiting line is full, 503 if no replica answers, 500 if it failed twice. Later: 500 if no
        method can continue. At any time: 400 if the request itself stops the response, 504 if the
        deadline passes.
        """
        while True:
            call = self._call = self._call or self._next_call()
            try:
                chunk = await call.next()
            except DeadlineError as error:
                where = "in the middle of the answer" if self._began else "before the answer began"
                missed = f"the deadline passed {where}"
                raise ApiError(504, missed, code="deadline_exceeded") from error
            except EngineRefusedError as error:
                if not self._began:
                    raise ApiError(400, str(error), code="invalid_request") from error
            except RequestFaultError as error:
                raise ApiError(400, str(error), code=REQUEST_FAULT) from error
            except EngineBusyError:
                self._busy = True
            except Exception as error:  # whatever the failure, another method may answer
                logger.warning("%s failed: %s", call.request.method, error)
                self._failures.append(error)
            else:
                if chunk is not None:
                    self._took(call.request, chunk)
                return chunk
            self._call = None

    async def close(self) -> None:
        """End the response and the work on it, whether or not anything was read."""
        await self.chunks.aclose()
        await self.end_work()  # a generator that was never started ends nothing

    async def end_work(self) -> None:
        if self._call is not None:
            await self._call.close()

    def _next_call(self) -> Call:
        """Call the next method that may answer. Raises ApiError without one."""
        failures = self._failures
        if len(failures) < MOST_FAILURES and len(self.token_ids) < self.prompt.sampling.max_tokens:
            for attempt, method in self._attempts:
                if self._calls.circuits.admits(method):
                    self._failed_over = attempt > 0
                    request, whole = self._request(method), self.prompt.whole
                    return Call(self._calls, request, self._deadline, self._cut, whole=whole)
        cause = failures[-1] if failures else None
        if self._began:
            why = f"{self.method} failed in the middle of the answer"
            raise ApiError(500, why, code="answer_broken_off") from cause
        if len(failures) == MOST_FAILURES:  # it may be the cause
            why = f"this request failed {MOST_FAILURES} times"
            raise ApiError(500, why, code=GIVEN_UP) from cause
        if self._busy:
            raise overloaded("every replica's waiting line is full; try again shortly")
        raise unavailable("no replica could answer")

    def _took(self, request: DecodeRequest, chunk: DecodeChunk) -> None:
        self._began = True
        self.method, self.earlier_tokens = request.method, len(request.answered_token_ids)
        if self._failed_over:
            self.reason = "failover"
        self.token_ids += chunk.token_ids

    def _request(self, method: str) -> DecodeRequest:
        prompt = self.prompt
        return DecodeRequest(
            request_id=self.request_id,
            method=method,
            prompt_token_ids=prompt.token_ids,
            answered_token_ids=tuple(self.token_ids),
            **{name: getattr(prompt, name) for name in _OF_PROMPT},
        )


async def all_or_none(
    calls: Iterable[Awaitable[Result]], undo: Callable[[Result], Awaitable[None]]
) -> list[Result]:
    """Return the results of concurrent calls.

    If one raises or this is cancelled, the others are cancelled, finished ones are undone, and the
    first exception is raised.
    """
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        for given in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(given, BaseException):
                await undo(given)
        raise


async def interleaved(
    answers: Sequence[Answer],
) -> AsyncGenerator[list[tuple[int, DecodeChunk]], None]:
    """Yield the chunks that arrive together, each with its response's index; close the
    responses."""
    if len(answers) == 1:  # the usual case, without a task for every chunk
        [answer] = answers
        try:
            async for only in answer.chunks:
                yield [(0, only)]
        finally:
            await answer.close()
        return
    pending: dict[asyncio.Future[DecodeChunk | None], int] = {}

    def ask(index: int) -> None:
        pending[asyncio.ensure_future(anext(answers[index].chunks, None))] = index

    try:
        for index in range(len(answers)):
            ask(index)
        while pending:
            done, _ = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            succeeded = sorted(
                (future for future in done if future.exception() is None), key=pending.__getitem__
            )
            arrived = [(pending.pop(future), future.result()) for future in succeeded]
            chunks = [(index, chunk) for index, chunk in arrived if chunk is not None]
            if chunks:
                yield chunks
            for failed in done.difference(succeeded):
                failed.result()
            for index, _ in chunks:
                ask(index)
    finally:
        for future in pending:
            future.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        for answer in answers:
            await answer.close()


def silenced(chunk: DecodeChunk) -> DecodeChunk:
    """Return a chunk of a prompt that is only read, without the token that was emitted."""
    said = {"text": "", "token_ids": (), "drafted": (), "logprobs": ()}
    if chunk.stats is None:
        return chunk.model_copy(update=said)
    stats = chunk.stats.model_copy(update={"output_tokens": 0})
    return chunk.model_copy(update={**said, "finish_reason": "length", "stats": stats})


def observation_of(
    decision: Decision, stats: DecodeStats, prompt: Prompt, *, failed: bool = False
) -> Observation:
    """Return the observation of a response, whole or cut off, without the prompt's vector."""
    return Observation(
        stats=stats,
        cluster=decision.cluster,
        fit_id=decision.fit_id,
        table_version=decision.table_version,
        policy=decision.policy,
        reason=decision.reason if stats.method == decision.method else "failover",
        propensity=decision.propensity,
        choices=prompt.choices,
        predicted_acceptance=decision.predicted_acceptance.get(stats.method),
        free_to_end=prompt.sampling.free_to_end,
        grammar=prompt.sampling.grammar is not None,
        predicted_seconds=decision.predicted_seconds.get(stats.method, 0.0),
        failed=failed,
        time=time.time(),
    )


def sample_of(answer: Answer, owner: str) -> Sample:
    """Return the sample of a finished answer."""
    prompt = answer.prompt
    if prompt.conversation is not None:
        conversation = prompt.conversation.origin
    else:  # a conversation of its own
        conversation = sha256(json.dumps(prompt.token_ids).encode()).hexdigest()
    return Sample(
        id=answer.request_id,
        conversation=conversation,
        owner=owner,
        fit_id=answer.decision.fit_id,
        cluster=answer.decision.cluster,
        method=answer.method,
        temperature=prompt.sampling.temperature,
        prompt_token_ids=prompt.token_ids,
        answer_token_ids=tuple(answer.token_ids),
        time=time.time(),
    )
