"""An Answer as OpenAI's response bodies: whole, or as server-sent events."""

import json
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Literal

from fastapi.responses import StreamingResponse
from starlette.types import Send

from deployments.answer import Answer
from deployments.api_error import ApiError
from schemas import DecodeStats

Kind = Literal["chat", "completion"]

_DONE = "data: [DONE]\n\n"


class EventStream(StreamingResponse):
    """Server-sent events; the generator is closed (and the work cancelled) with the response."""

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
    """One answer's bodies under one id."""

    def __init__(self, kind: Kind, model: str, answer: Answer) -> None:
        self._kind = kind
        self._answer = answer
        prefix = "chatcmpl" if kind == "chat" else "cmpl"
        self._head = {
            "id": f"{prefix}-{answer.request_id}",
            "created": int(time.time()),
            "model": model,
        }

    def headers(self) -> dict[str, str]:
        """Who answers and why; known only once the first chunk is there."""
        return {
            "x-specadapt-method": self._answer.method,
            "x-specadapt-cluster": str(self._answer.decision.cluster),
            "x-specadapt-reason": self._answer.reason,
        }

    async def whole(self) -> dict[str, Any]:
        """The response body without streaming. Raises ApiError where the answer breaks off."""
        text, finish = "", None
        async for chunk in self._answer.chunks:
            text += chunk.text
            finish = chunk.finish_reason
        content: dict[str, Any]
        if self._kind == "chat":
            content = {"message": {"role": "assistant", "content": text, "refusal": None}}
        else:
            content = {"text": text}
        return {
            **self._head,
            "object": "chat.completion" if self._kind == "chat" else "text_completion",
            "choices": [{"index": 0, **content, "logprobs": None, "finish_reason": finish}],
            "usage": self.usage(),
        }

    async def events(self, include_usage: bool) -> AsyncGenerator[str, None]:
        """Server-sent events. An answer that breaks off ends with an error event, not [DONE]."""
        try:
            if self._kind == "chat":
                yield self._event(delta={"role": "assistant", "content": ""})
            async for chunk in self._answer.chunks:
                if chunk.text:
                    yield self._event(**self._piece(chunk.text))
                if chunk.finish_reason is not None:
                    end: dict[str, Any] = {"delta": {}} if self._kind == "chat" else {"text": ""}
                    yield self._event(finish=chunk.finish_reason, **end)
            if include_usage:
                yield _data({**self._chunk_head(), "choices": [], "usage": self.usage()})
            yield _DONE
        except ApiError as error:
            yield _data(error.body())
        finally:
            await self._answer.chunks.aclose()

    def usage(self) -> dict[str, Any] | None:
        """OpenAI's usage with the speculative statistics; None before the last chunk."""
        stats = self._answer.stats
        return None if stats is None else usage(stats, self._answer)

    def _piece(self, text: str) -> dict[str, Any]:
        return {"delta": {"content": text}} if self._kind == "chat" else {"text": text}

    def _event(self, *, finish: str | None = None, **content: Any) -> str:
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": finish}
        return _data({**self._chunk_head(), "choices": [choice]})

    def _chunk_head(self) -> dict[str, Any]:
        name = "chat.completion.chunk" if self._kind == "chat" else "text_completion"
        return {**self._head, "object": name}


def usage(stats: DecodeStats, answer: Answer) -> dict[str, Any]:
    """Token counts and what speculation did. Seconds are the engine's, on its own clock;
    `mean_acceptance_length` counts the bonus token; `routing_ms` is embedding and choosing."""
    steps = max(1, stats.target_steps)
    seconds = stats.total_seconds
    speculative = {
        "method": stats.method,
        "cluster": answer.decision.cluster,
        "reason": answer.reason,
        "target_steps": stats.target_steps,
        "drafted_tokens": stats.drafted_tokens,
        "accepted_tokens": stats.accepted_tokens,
        "mean_acceptance_length": stats.output_tokens / steps,
        "tokens_per_s": stats.output_tokens / seconds if seconds > 0 else 0.0,
        "queue_seconds": stats.queue_seconds,
        "decode_seconds": stats.decode_seconds,
        "draft_seconds": stats.draft_seconds,
        "verify_seconds": stats.verify_seconds,
        "sample_seconds": stats.sample_seconds,
        "other_seconds": stats.other_seconds,
        "total_seconds": seconds,
        "mean_batch": stats.mean_batch,
        "looping": stats.looping,
        "routing_ms": answer.routing_seconds * 1e3,
        "engine_first_token_ms": stats.first_token_seconds * 1e3,
    }
    return {
        "prompt_tokens": stats.prompt_tokens,
        "completion_tokens": stats.output_tokens,
        "total_tokens": stats.prompt_tokens + stats.output_tokens,
        "speculative": speculative,
    }


def _data(body: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n"
