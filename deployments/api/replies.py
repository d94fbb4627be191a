"""Answers as OpenAI's response bodies: whole, or as server-sent events."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal

from fastapi.responses import StreamingResponse
from starlette.types import Send

from deployments.api.drafted_runs import DraftedRuns
from deployments.api.generation import StreamOptions
from deployments.api.logprobs import ChatLogprobs, CompletionLogprobs, joined
from deployments.api.response_bodies import PromptTokens, Speculative, Usage
from deployments.errors import ApiError
from deployments.request.answered import Answer
from deployments.request.prompt import Prompt
from schemas import DecodeChunk, DecodeStats
from workers.token_text import TokenText

Kind = Literal["chat", "completion"]

_DONE = "data: [DONE]\n\n"


class EventStream(StreamingResponse):
    """Stream server-sent events. The generator, and so the work, ends with the response."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[str, None], headers: Mapping[str, str]) -> None:
        # Proxies in between must not gather the stream up.
        still = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(events, headers={**headers, **still})
        self._events = events

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        finally:
            await self._events.aclose()


class Reply:
    """Write the answers of one request under one id, each prompt's choices in turn.

    answers: per prompt its choices.
    """

    def __init__(
        self,
        kind: Kind,
        model: str,
        prompts: Sequence[Prompt],
        answers: Sequence[Sequence[Answer]],
        tokens: TokenText,
    ) -> None:
        self._kind = kind
        self._firsts = [choices[0] for choices in answers]
        self._answers = [answer for choices in answers for answer in choices]
        self._echoed = [
            prompt.echoed for prompt, choices in zip(prompts, answers, strict=True) for _ in choices
        ]
        self._tokens = tokens
        writer = ChatLogprobs if kind == "chat" else CompletionLogprobs
        self._logprobs = [writer(tokens) for _ in self._answers]
        prefix = "chatcmpl" if kind == "chat" else "cmpl"
        self._head = {
            "id": f"{prefix}-{self._firsts[0].request_id}",
            "created": int(time.time()),
            "model": model,
        }

    def headers(self) -> dict[str, str]:
        """Return who answers (the first prompt's first choice) and why."""
        first = self._firsts[0]
        degraded = {"x-specadapt-degraded": ", ".join(first.degraded)} if first.degraded else {}
        return {
            "x-specadapt-method": first.method,
            "x-specadapt-cluster": str(first.decision.cluster),
            "x-specadapt-reason": first.reason,
            **degraded,
        }

    async def whole(self) -> dict[str, Any]:
        """Return the response body without streaming. Raises ApiError if an answer breaks off."""
        choices = [_Choice(echoed) for echoed in self._echoed]
        async with aclosing(interleaved(self._answers)) as chunks:
            async for index, chunk in chunks:
                choices[index].add(chunk, self._logprobs[index].of(chunk))
        chat = self._kind == "chat"
        return {
            **self._head,
            "object": "chat.completion" if chat else "text_completion",
            "choices": [
                {
                    "index": index,
                    **(_message(choice.text) if chat else {"text": choice.text}),
                    "logprobs": choice.logprobs,
                    "finish_reason": choice.finish,
                }
                for index, choice in enumerate(choices)
            ],
            "usage": self._usage(),
        }

    async def events(self, options: StreamOptions) -> AsyncGenerator[str, None]:
        """Yield server-sent events. An answer that breaks off ends with an error event, not
        [DONE]."""
        runs = [DraftedRuns(self._tokens) for _ in self._answers]
        empty: list[dict[str, Any] | None] = [None] * len(
            self._answers
        )  # log probabilities of no token, for the last event
        try:
            if self._kind == "chat":
                for index in range(len(self._answers)):
                    yield self._event(index, delta={"role": "assistant", "content": ""})
            for index, echoed in enumerate(self._echoed):
                if echoed:
                    piece = self._piece(echoed)
                    if options.include_drafted:
                        piece["drafted"] = [(echoed, False)]
                    yield self._event(index, **piece)
            async with aclosing(interleaved(self._answers)) as chunks:
                async for index, chunk in chunks:
                    logprobs = self._logprobs[index].of(chunk)
                    piece = self._piece(chunk.text)
                    if options.include_drafted and (drafted := runs[index].of(chunk)):
                        piece["drafted"] = drafted
                    if chunk.text or any((logprobs or {}).values()) or "drafted" in piece:
                        yield self._event(index, logprobs=logprobs, **piece)
                        empty[index] = None
                    else:
                        empty[index] = empty[index] or logprobs
                    if chunk.finish_reason is not None:
                        end = self._end() | {"logprobs": empty[index]}
                        yield self._event(index, finish=chunk.finish_reason, **end)
            if options.include_usage:
                yield _data({**self._chunk_head(), "choices": [], "usage": self._usage()})
            yield _DONE
        except ApiError as error:
            yield _data(error.body())
        finally:
            for answer in self._answers:
                await answer.close()

    def _usage(self) -> dict[str, Any] | None:
        """Return OpenAI's usage with the speculative statistics; None before the last chunk."""
        if any(answer.stats is None for answer in self._answers):
            return None
        return usage(self._answers, self._firsts).model_dump()

    def _piece(self, text: str) -> dict[str, Any]:
        return {"delta": {"content": text}} if self._kind == "chat" else {"text": text}

    def _end(self) -> dict[str, Any]:
        return {"delta": {}} if self._kind == "chat" else {"text": ""}

    def _event(
        self,
        index: int,
        *,
        finish: str | None = None,
        logprobs: dict[str, Any] | None = None,
        **content: Any,
    ) -> str:
        choice = {"index": index, **content, "logprobs": logprobs, "finish_reason": finish}
        return _data({**self._chunk_head(), "choices": [choice]})

    def _chunk_head(self) -> dict[str, Any]:
        name = "chat.completion.chunk" if self._kind == "chat" else "text_completion"
        return {**self._head, "object": name}


@dataclass
class _Choice:
    """Collect an answer's chunks."""

    text: str
    finish: str | None = None
    logprobs: dict[str, Any] | None = None

    def add(self, chunk: DecodeChunk, logprobs: dict[str, Any] | None) -> None:
        self.text += chunk.text
        self.finish = chunk.finish_reason
        self.logprobs = joined(self.logprobs, logprobs)


async def interleaved(
    answers: Sequence[Answer],
) -> AsyncGenerator[tuple[int, DecodeChunk], None]:
    """Yield the chunks of all answers as they arrive, with the answer's index; close the
    answers."""
    if len(answers) == 1:  # the usual case, without a task for every chunk
        [answer] = answers
        try:
            async for only in answer.chunks:
                yield 0, only
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
            for future in sorted(done, key=pending.__getitem__):
                chunk = future.result()
                index = pending.pop(future)
                if chunk is not None:
                    yield index, chunk
                    ask(index)
    finally:
        for future in pending:
            future.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        for answer in answers:
            await answer.close()


def _message(text: str) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": text, "refusal": None}}


def usage(answers: Sequence[Answer], firsts: Sequence[Answer]) -> Usage:
    """Return token counts and what speculation did, summed over the choices; a prompt counts once.

    Seconds are the engine's, of the choice that took longest, since choices are decoded side by
    side. `mean_acceptance_length` counts the bonus token; `routing_ms` is embedding and choosing.
    If a method failed and another continued, all but the token counts are of the latter. firsts:
    each prompt's first choice; the very first gives method and decision.
    """
    answer, choices = firsts[0], _stats(answers)
    steps = sum(one.target_steps for one in choices)
    tokens = sum(one.output_tokens for one in choices)
    stats = max(choices, key=lambda one: one.total_seconds)
    seconds = stats.total_seconds
    speculative = Speculative(
        method=answer.method,
        cluster=answer.decision.cluster,
        reason=answer.reason,
        target_steps=steps,
        drafted_tokens=sum(one.drafted_tokens for one in choices),
        accepted_tokens=sum(one.accepted_tokens for one in choices),
        mean_acceptance_length=tokens / max(1, steps),
        tokens_per_s=tokens / seconds if seconds > 0 else 0.0,
        queue_seconds=stats.queue_seconds,
        decode_seconds=stats.decode_seconds,
        draft_seconds=stats.draft_seconds,
        verify_seconds=stats.verify_seconds,
        sample_seconds=stats.sample_seconds,
        other_seconds=stats.other_seconds,
        stalled_seconds=stats.stalled_seconds,
        total_seconds=seconds,
        mean_batch=stats.mean_batch,
        looping=any(one.looping for one in choices),
        routing_ms=answer.routing_seconds * 1e3,
        engine_first_token_ms=stats.first_token_seconds * 1e3,
    )
    completion_tokens = tokens + sum(one.earlier_tokens for one in answers)
    read = sum(one.prompt_tokens for one in _stats(firsts))
    prompt_tokens = read - sum(one.earlier_tokens for one in firsts)
    cached_tokens = sum(one.cached_prompt_tokens for one in _stats(firsts))
    return Usage(
        prompt_tokens=prompt_tokens,
        prompt_tokens_details=PromptTokens(cached_tokens=cached_tokens),
        completion_tokens=completion_tokens,
        total_tokens=prompt_tokens + completion_tokens,
        speculative=speculative,
    )


def _stats(answers: Sequence[Answer]) -> list[DecodeStats]:
    return [answer.stats for answer in answers if answer.stats is not None]


def _data(body: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n"
