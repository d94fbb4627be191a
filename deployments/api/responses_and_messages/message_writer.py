"""Answers as Messages: the object, and its events in Anthropic's order."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from deployments.api.event_stream import Event
from deployments.api.tools.parser import Arguments, CallBroken, CallStart, Piece, Text, Thought
from deployments.errors import ANTHROPIC, ApiError
from schemas import DecodeChunk

_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class MessageWriter:
    """Write one response's content blocks: thinking, text and uses of tools."""

    def __init__(self, model: str, answer_id: str, tokens: int, stops: Sequence[str]) -> None:
        """tokens: of the prompt. stops: the request's stop sequences, which end the engine's
        text."""
        self._stops = sorted(stops, key=len, reverse=True)
        self._stop: str | None = None
        self._tokens = tokens
        self._cached: int | None = None
        """Of the prompt's tokens, as the first event says it."""
        self._content: list[dict[str, Any]] = []
        self._arguments = ""
        self._open = False
        self._message: dict[str, Any] = {
            "id": f"msg_{answer_id}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": self._content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": None,
        }

    def inspected(self, chunk: DecodeChunk) -> DecodeChunk:
        # The engine ends at a stop sequence and gives it in one piece. One that more text follows
        # came before `min_tokens`, and is text.
        text, self._stop = (self._stop or "") + chunk.text, None
        if chunk.finish_reason in (None, "stop"):
            self._stop = next(filter(text.endswith, self._stops), None)
        return chunk.model_copy(update={"text": text.removesuffix(self._stop or "")})

    def begin(self, first: DecodeChunk | None, /) -> list[Event]:
        told = first and (first.stats or first)
        self._cached = told.cached_prompt_tokens if told else 0
        usage = _usage(self._tokens, self._cached, 0)
        message = {**self._message, "content": [], "usage": usage}
        return [_event("message_start", message=message)]

    def add(self, piece: Piece) -> list[Event]:
        match piece:
            case Text(text):
                return self._said(text, {"type": "text", "text": ""})
            case Thought(text):
                return self._said(text, {"type": "thinking", "thinking": "", "signature": ""})
            case CallStart(id=id_, name=name):
                block = {"type": "tool_use", "id": id_, "name": name, "input": {}}
                return [*self._closed(), self._started(block)]
            case Arguments(text=text):
                self._arguments += text
                return [self._delta({"type": "input_json_delta", "partial_json": text})]
            case CallBroken():
                return self._closed()

    def end(self, finish: str, usage: Mapping[str, Any]) -> list[Event]:
        events = self._closed()
        reason = _REASONS[finish]
        if self._stop is not None and reason == "end_turn":
            reason = "stop_sequence"
            self._message["stop_sequence"] = self._stop
        self._message["stop_reason"] = reason
        cached = self._cached
        if cached is None:  # the response is not streamed
            cached = usage["prompt_tokens_details"]["cached_tokens"]
        counts = _usage(self._tokens, cached, usage["completion_tokens"])
        counts["speculative"] = usage["speculative"]
        self._message["usage"] = counts
        delta = {name: self._message[name] for name in ("stop_reason", "stop_sequence")}
        return [
            *events,
            _event("message_delta", delta=delta, usage=counts),
            _event("message_stop"),
        ]

    def failed(self, error: ApiError) -> list[Event]:
        return [("error", error.body(ANTHROPIC))]

    def body(self) -> dict[str, Any]:
        return self._message

    def _said(self, text: str, block: dict[str, Any]) -> list[Event]:
        """Return the events of text, which begin a block unless one of its type is open."""
        kind, begun = block["type"], list[Event]()
        if not self._open or self._content[-1]["type"] != kind:
            begun = [*self._closed(), self._started(block)]
        self._content[-1][kind] += text
        return [*begun, self._delta({"type": f"{kind}_delta", kind: text})]

    def _started(self, block: dict[str, Any]) -> Event:
        self._open, self._arguments = True, ""
        self._content.append(block)
        index = len(self._content) - 1
        return _event("content_block_start", index=index, content_block=dict(block))

    def _delta(self, delta: dict[str, Any]) -> Event:
        return _event("content_block_delta", index=len(self._content) - 1, delta=delta)

    def _closed(self) -> list[Event]:
        """Return the event that ends the open block, if there is one."""
        if not self._open:
            return []
        self._open = False
        block = self._content[-1]
        if block["type"] == "tool_use":
            try:
                block["input"] = json.loads(self._arguments)
            except ValueError:  # streamed, and broken off
                block["input"] = {}
        return [_event("content_block_stop", index=len(self._content) - 1)]


def _usage(prompt: int, cached: int, output: int) -> dict[str, Any]:
    return {
        "input_tokens": prompt - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": output,
    }


def _event(name: str, /, **fields: Any) -> Event:
    return name, {"type": name, **fields}
